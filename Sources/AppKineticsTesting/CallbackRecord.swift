public import AppRuntime
import Locks

/// What was called in the apps of a test, in order.
///
/// It has requests whose handlers begin and replies that are about to be sent, errors too, of all
/// apps; and of apps with a runtime each preparation, each event, and calls that came before the
/// first authorization. Whatever else belongs into the order, a test notes itself.
///
/// The event `servicesUpdate` comes when another app of the test offers something: its place in the
/// order is not certain.
public final class CallbackRecord: Sendable {
  /// A call.
  public struct Entry: Sendable, Hashable, CustomStringConvertible {
    /// The app that was called.
    public let app: ApplicationID
    /// The call: `prepare`, `authorized`, `notAuthorized -300 idle`, `misuse container`, `request
    /// greetMe from com.example.reader`, `reply to com.example.reader`, or what a test has noted.
    public let call: String
    /// The event, if it was one.
    public let event: AuthorizationEvent?

    /// The app and the call.
    public var description: String { "\(app) \(call)" }
  }

  private let guarded = Guarded<[Entry]>([])

  init() {}

  /// All calls since the last ``take()``, oldest first.
  public var entries: [Entry] { guarded.withLock { $0 } }

  /// The calls of one app since the last ``take()``, oldest first.
  public func calls(of app: ApplicationID) -> [String] { entries.filter { $0.app == app }.map(\.call) }

  /// Returns all calls, and begins anew.
  @discardableResult
  public func take() -> [Entry] {
    guarded.withLock { entries in
      defer { entries = [] }
      return entries
    }
  }

  /// Adds a call.
  public func note(_ call: String, in app: ApplicationID) { note(call, in: app, nil) }

  func note(_ event: AuthorizationEvent, in app: ApplicationID) {
    var words = ["\(event.kind)"]
    if event.code != .none { words.append("\(event.code.rawValue)") }
    if let withdrawal = event.withdrawal { words.append(withdrawal.name) }
    note(words.joined(separator: " "), in: app, event)
  }

  private func note(_ call: String, in app: ApplicationID, _ event: AuthorizationEvent?) {
    guarded.withLock { $0.append(Entry(app: app, call: call, event: event)) }
  }
}

extension Withdrawal {
  fileprivate var name: String {
    switch self {
    case .idle: "idle"
    case .passwordChange: "passwordChange"
    case .localBlock: "localBlock"
    case .managementBlock: "managementBlock"
    case .versionNotEntitled: "versionNotEntitled"
    case .notEntitled: "notEntitled"
    case .remoteLock: "remoteLock"
    case .wiped: "wiped"
    }
  }
}

/// Records what the services of one process call, and holds up its replies.
final class RecordingObserver: ServicesObserver {
  private let app: ApplicationID
  private let record: CallbackRecord
  private let replies: TestGate
  private let hasEnded = Guarded(false)

  init(_ app: ApplicationID, _ record: CallbackRecord, _ faults: TestFaults) {
    (self.app, self.record, replies) = (app, record, faults.replies)
  }

  func willHandle(_ request: IncomingRequest) {
    note("request \(request.method) from \(request.sender)")
  }

  func mayReply(to request: IncomingRequest) async -> Bool { await replies.pass() }

  func willReply(to request: IncomingRequest) { note("reply to \(request.sender)") }

  private func note(_ call: String) { if !hasEnded.withLock({ $0 }) { record.note(call, in: app) } }

  /// The process ends: what its handlers do from now on reaches nobody.
  func silence() { hasEnded.withLock { $0 = true } }

  /// Its services answer nothing any more: whoever waits to reply may go.
  func end() {
    silence()
    replies.release()
  }
}
