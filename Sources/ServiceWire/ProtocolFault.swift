/// What ends a connection, as a number of the protocol (CHANNEL-PROTOCOL.md, "Errors", from 100 on, and those below that may end one).
package enum ProtocolFault: UInt32, Error, Sendable, CaseIterable {
  case noError = 0
  case applicationNotFound = 3
  case notAllowed = 7
  case certificateNotFound = 9
  case enterpriseUserNotMatch = 13
  case limitExceeded = 16
  case connectionLost = 18
  case timedOut = 19
  case malformed = 100
  case frameTooLong
  case unexpectedMessage
  case unexpectedDescriptors
  case versionNotSupported
  case brokerNotTrusted
  case keyNotPinned
  case ticketRefused
  case tooSlow
  case replaced
  case forgotten
  case streamDamaged
  case shuttingDown
  case keyChanged
  case duplicated

  /// What happened, for a log: it never has anything that the other side sent.
  package var text: String {
    switch self {
    case .noError: "the connection ended in good order"
    case .applicationNotFound: "no app with that id is registered"
    case .notAllowed: "the policy does not allow it"
    case .certificateNotFound: "the peer did not prove the key that it should have"
    case .enterpriseUserNotMatch: "the peer was activated for another user"
    case .limitExceeded: "a limit was exceeded"
    case .connectionLost: "the connection ended without a word"
    case .timedOut: "the peer took too long"
    case .malformed: "the peer sent bytes that are no message of the protocol"
    case .frameTooLong: "the peer sent an empty frame, or one that is longer than agreed"
    case .unexpectedMessage: "the peer sent a message that it may not send in this state"
    case .unexpectedDescriptors: "descriptors came that nobody asked for, or not as many as announced"
    case .versionNotSupported: "the peer speaks no version of the protocol that is known here"
    case .brokerNotTrusted: "the broker is not the one that this app enrolled with"
    case .keyNotPinned:
      "the peer's key is not the one that was enrolled for its app id, or not the administrator's"
    case .ticketRefused: "the peer shows the ticket of another introduction"
    case .tooSlow: "the peer does not read what it asked for"
    case .replaced: "the same app connected again"
    case .forgotten: "the app was forgotten by an administrator"
    case .streamDamaged: "what came on the bulk lane is not what was announced, or does not open"
    case .shuttingDown: "the broker is shutting down"
    case .keyChanged: "the app has another key than the one that is trusted for it"
    case .duplicated: "the same app connected again and again: a copy of it runs"
    }
  }
}
