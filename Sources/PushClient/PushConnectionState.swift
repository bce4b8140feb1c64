internal import NIOCore
internal import NIOHTTP1
internal import NIOPosix
internal import NIOSSL
internal import PushWire

#if canImport(Glibc)
  internal import Glibc
#elseif canImport(Musl)
  internal import Musl
#elseif canImport(Darwin)
  internal import Darwin
#endif

/// The connection to the relay.
public enum PushConnectionState: Sendable, Hashable {
  /// No channel needs a connection, the gate permits none, or the first attempt has no result yet.
  case idle
  case connected
  /// The last attempt to connect failed, or the connection has ended. The runtime tries again.
  case failed(PushConnectionFailure)
}

/// The cause of a connection to the relay that could not be made or was lost.
public enum PushConnectionFailure: Sendable, Hashable, CaseIterable {
  case unresolvedHost
  /// The host is reached, and no process listens at the port.
  case refused
  case unreachable
  case timeout
  case certificateNotTrusted
  /// The certificate is for other names.
  case certificateForOtherName
  /// The port does not speak TLS.
  case noTLS
  case tlsFailed
  /// No relay, or not its port for devices.
  case noRelay
  /// The connection broke without a word of the relay.
  case lost
  /// The relay requires an admission key, and this one is not among its keys. The runtime tries again after
  /// an hour or more.
  case notAdmitted
  case versionNotSupported
  /// Another connection uses the same state.
  case replaced
  /// The relay has as many devices as it may.
  case full
  case stopping
  /// The relay cannot read or write its database.
  case relayFailed
  /// The state of this device cannot be stored.
  case stateNotStored
}

extension PushConnectionFailure: CustomStringConvertible {
  public var description: String {
    switch self {
    case .unresolvedHost: "the relay's name cannot be resolved"
    case .refused: "connection refused"
    case .unreachable: "the relay cannot be reached"
    case .timeout: "no answer"
    case .certificateNotTrusted: "the relay's certificate is not trusted"
    case .certificateForOtherName: "the relay's certificate is for another name"
    case .noTLS: "the port does not speak TLS"
    case .tlsFailed: "TLS failed"
    case .noRelay: "the port is not that of a relay for devices"
    case .lost: "the connection was lost"
    case .notAdmitted: "the relay does not admit this device"
    case .versionNotSupported: "the relay has another version of the protocol"
    case .replaced: "another connection uses the same state"
    case .full: "the relay has too many devices"
    case .stopping: "the relay is stopping"
    case .relayFailed: "the relay's database failed"
    case .stateNotStored: "the state of this device cannot be stored"
    }
  }
}

extension PushConnectionFailure {
  init(_ reason: GoodbyeReason) {
    self =
      switch reason {
      case .version: .versionNotSupported
      case .notAdmitted: .notAdmitted
      case .replaced: .replaced
      case .full: .full
      case .draining: .stopping
      case .failed: .relayFailed
      case .malformed, .slow, .silent: .lost
      }
  }

  /// The cause of an attempt that threw.
  package init(_ error: any Error) {
    switch error {
    case let error as NIOConnectionError:
      if let first = error.connectionErrors.first {
        // A host has several addresses: of those that failed, the one that refused was reached.
        let causes = error.connectionErrors.map { Self($0.error) }
        self = causes.contains(.refused) ? .refused : Self(first.error)
      } else {
        self = .unresolvedHost
      }
    case let error as IOError:
      self =
        switch error.errnoCode {
        case ECONNREFUSED: .refused
        case ETIMEDOUT: .timeout
        case ECONNRESET, EPIPE: .lost
        default: .unreachable
        }
    case ChannelError.connectTimeout: self = .timeout
    case let error as NIOSSLExtraError where error == .failedToValidateHostname:
      self = .certificateForOtherName
    case is NIOSSLError, is BoringSSLError:
      let text = "\(error)"
      self =
        if text.contains("CERTIFICATE_VERIFY_FAILED") {
          .certificateNotTrusted
        } else if text.contains("WRONG_VERSION_NUMBER") || text.contains("HTTP_REQUEST") {
          .noTLS
        } else {
          .tlsFailed
        }
    case is RelayConnection.Refused, is HTTPParserError: self = .noRelay
    default: self = .lost
    }
  }
}
