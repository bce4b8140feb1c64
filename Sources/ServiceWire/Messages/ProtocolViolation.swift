import Foundation
import SodiumPrimitives

/// Why a peer's message ends the connection that it came over.
struct ProtocolViolation: Error {
  var fault: ProtocolFault
  var detail = ""
}

// What is checked of a message wherever it comes: on its own, or as a part of another one.

extension Identifier {
  /// Throws `malformed` unless there are 16 bytes.
  init(wire bytes: Data) throws(ProtocolViolation) {
    guard let id = Identifier(exactly: bytes) else { throw ProtocolViolation(fault: .malformed) }
    self = id
  }
}

extension WireIncarnation {
  /// Of messages and of generations.
  package static let numbers: Range<UInt64> = 1..<1 << 62
  /// What a receiver has seen may be so many generations above the one of an offer.
  package static let stepMax: UInt64 = 1 << 20

  func check() throws(ProtocolViolation) {
    _ = try Identifier(wire: draw)
    guard Self.numbers.contains(generation) else { throw ProtocolViolation(fault: .malformed) }
  }
}

extension WireRequest {
  func check() throws(ProtocolViolation) {
    if case .UNRECOGNIZED = foreground { throw ProtocolViolation(fault: .malformed) }
    guard hasNamesOfRightLength else { throw ProtocolViolation(fault: .malformed) }
  }

  var hasNamesOfRightLength: Bool {
    [serviceID, version, method].allSatisfy { $0.utf8.count <= ExchangeLimits.nameByteCountMax }
  }
}

extension WireReply {
  func check() throws(ProtocolViolation) {
    if case .UNRECOGNIZED = foreground { throw ProtocolViolation(fault: .malformed) }
    switch result {
    case .failure(let failure): try failure.check()
    case .error(let error):
      guard error.text.utf8.count <= ExchangeLimits.textByteCountMax else {
        throw ProtocolViolation(fault: .malformed)
      }
      if error.hasDetails {
        guard case .object? = error.details.kind else { throw ProtocolViolation(fault: .malformed) }
      }
    case .params, nil: break
    }
  }
}

extension WireFailure {
  func check() throws(ProtocolViolation) {
    guard detail.utf8.count <= ExchangeLimits.textByteCountMax else {
      throw ProtocolViolation(fault: .malformed)
    }
  }

  /// The failure with as much of its detail as may be sent.
  var sendable: WireFailure {
    guard detail.utf8.count > ExchangeLimits.textByteCountMax else { return self }
    var end = detail.utf8.index(detail.startIndex, offsetBy: ExchangeLimits.textByteCountMax)
    while end.samePosition(in: detail.unicodeScalars) == nil { end = detail.utf8.index(before: end) }
    var failure = self
    failure.detail = String(detail.unicodeScalars[..<end])
    return failure
  }

  /// A limit was reached, which `limit` names.
  static func limitExceeded(_ limit: String) -> WireFailure {
    .with {
      $0.error = ProtocolFault.limitExceeded.rawValue
      $0.detail = limit
    }
  }

  /// A message is longer than the peer takes.
  static let frameLimit = limitExceeded("channel frame bytes")
}
