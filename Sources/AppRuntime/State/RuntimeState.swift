import Foundation
import SodiumPrimitives

/// What the runtime keeps beside a container, in the clear (Documentation/RUNTIME.md, "The state file").
struct RuntimeState: Sendable, Equatable, Codable {
  /// Why an app is locked remotely.
  enum RemoteLock: Sendable, Equatable, Codable {
    /// The app asked for it.
    case app
    /// A person typed too many wrong passwords.
    case attempts
    /// The state was removed or put back.
    case stateLost
    /// The management file of this serial ordered it.
    case management(serial: Int64)
  }

  /// The container that this state is about.
  var container: Identifier?
  var activated: Date?
  /// The instance identifier, drawn at the activation.
  var instance: UUID?
  /// The key slot of the person's password.
  var passwordKey: Identifier?
  /// Local blocks, the newest first.
  var blocks: [LocalBlock] = []
  var remoteLock: RemoteLock?
  /// The highest serial whose remote lock the unlock code has ended.
  var unlocked: Int64 = 0
  /// Wrong passwords in a row.
  var attempts = 0
  var lastAttempt: Date?
  var lastAuthentication: Date?
  var passwordSet: Date?
  /// The highest date that the wall clock ever showed.
  var highest: Date?
  /// The accepted management file, whole.
  var managed: Data?
  /// The container whose destruction has begun.
  var wiping: Identifier?
  /// The last work in the background, the newest first.
  var runs: [BackgroundRun] = []

  /// The highest date of this one and all before: whoever sets the clock back makes no password younger.
  mutating func advance(to date: Date) -> Date {
    let latest = max(date, highest ?? date)
    highest = latest
    return latest
  }
}

extension RuntimeState {
  /// The container is gone, and with it the locks that nobody but the app and its person had caused.
  mutating func noteWiped() {
    forgetContainer(now: nil)
    wiping = nil
    if case .management = remoteLock { return }
    remoteLock = nil
  }

  /// Another container is in the place of the one that this state was about. What an owner or the app decided holds for it, too.
  mutating func forgetContainer(now id: Identifier?) {
    container = id
    (activated, instance, passwordKey, passwordSet, lastAuthentication) = (nil, nil, nil, nil, nil)
    attempts = 0
  }
}
