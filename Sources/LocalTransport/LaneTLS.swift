import Foundation
import NIOCore
import NIOSSL
import ServiceWire

/// TLS as a lane uses it: version 1.3, both sides with a certificate, and no session that another could be resumed from.
enum LaneTLS {
  /// A context for one lane. Each has keys of its own for the tickets that the library sends, so none is of use anywhere else.
  static func context(
    _ role: LaneRole, key: AppKey, certificate: Data
  ) throws -> NIOSSLContext {
    let chain = [
      NIOSSLCertificateSource.certificate(try NIOSSLCertificate(bytes: Array(certificate), format: .der))
    ]
    let privateKey = NIOSSLPrivateKeySource.privateKey(
      try NIOSSLPrivateKey(bytes: Array(key.key.derRepresentation), format: .der))
    var configuration: TLSConfiguration
    switch role {
    case .dialler:
      configuration = .makeClientConfiguration()
      configuration.certificateChain = chain
      configuration.privateKey = privateKey
    case .acceptor:
      configuration = .makeServerConfiguration(certificateChain: chain, privateKey: privateKey)
    }
    configuration.minimumTLSVersion = .tlsv13
    configuration.maximumTLSVersion = .tlsv13
    // The peer must show a certificate. Whether it is the right one, the lane's PeerRule decides: in place of the library, not after it.
    configuration.certificateVerification = .noHostnameVerification
    configuration.trustRoots = .certificates([])
    return try NIOSSLContext(configuration: configuration)
  }

  static func handler(
    _ role: LaneRole, context: NIOSSLContext, check: @escaping (NIOSSLCertificate) -> Bool
  ) throws -> NIOSSLHandler {
    let verification: NIOSSLCustomVerificationCallback = { chain, promise in
      promise.succeed(chain.first.map(check) == true ? .certificateVerified : .failed)
    }
    return switch role {
    case .dialler:
      try NIOSSLClientHandler(
        context: context, serverHostname: nil, customVerificationCallback: verification)
    case .acceptor:
      NIOSSLServerHandler(context: context, customVerificationCallback: verification)
    }
  }

  /// How a lane ended, from an error of the library.
  static func end(_ error: any Error) -> LaneEnd {
    switch error {
    case NIOSSLError.handshakeFailed(let cause): end(cause, "in the handshake")
    case NIOSSLError.uncleanShutdown:
      LaneEnd(.neither, .connectionLost, "the connection ended without an end of TLS")
    case let cause as BoringSSLError: end(cause, "after the handshake")
    default: LaneEnd(.neither, .connectionLost, "\(error)")
    }
  }

  private static func end(_ error: BoringSSLError, _ phase: String) -> LaneEnd {
    guard case .sslError(let stack) = error else {
      return LaneEnd(.neither, .connectionLost, "the peer closed the connection \(phase)")
    }
    if stack == [.eofDuringHandshake] {
      return LaneEnd(.neither, .connectionLost, "the peer closed the connection \(phase)")
    }
    let reasons = stack.compactMap(reason)
    if reasons.contains(where: certificateAlerts.contains) {
      return LaneEnd(.peer, .certificateNotFound, "the peer refused this side's certificate")
    }
    if reasons.contains(noCertificate) {
      return LaneEnd(.here, .certificateNotFound, "the peer showed no certificate")
    }
    if reasons.contains(where: versions.contains) {
      return LaneEnd(.here, .versionNotSupported, "the peer does not speak TLS 1.3")
    }
    return LaneEnd(
      .here, .malformed, "no TLS \(phase): \(stack.map(\.description).joined(separator: "; "))")
  }

  /// The library gives its error codes only as text: `Error: <code> <text>`. Of a code of TLS the lower 12 bits are the reason.
  private static func reason(_ error: BoringSSLInternalError) -> UInt32? {
    let words = error.description.split(separator: " ", maxSplits: 2)
    guard words.count >= 2, let code = UInt32(words[1]), code >> 24 == tlsLibrary else { return nil }
    return code & 0xfff
  }

  private static let tlsLibrary: UInt32 = 16
  /// PEER_DID_NOT_RETURN_A_CERTIFICATE.
  private static let noCertificate: UInt32 = 192
  /// WRONG_VERSION_NUMBER is that of plain text too, so only UNSUPPORTED_PROTOCOL and the alert protocol_version are of versions.
  private static let versions: Set<UInt32> = [240, 1000 + 70]
  /// A peer's alert is 1000 and its number: bad, unsupported, revoked, expired and unknown certificate, unknown authority, certificate
  /// required.
  private static let certificateAlerts: Set<UInt32> = Set([42, 43, 44, 45, 46, 48, 116].map { 1000 + $0 })
}
