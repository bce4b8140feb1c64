@_exported public import AppKineticsTesting
@_exported public import BlackBerryDynamics
public import Dispatch
import Locks
public import PushTesting

/// The app of a test's process that is written for the vendor's interface, with its person and its
/// owner. The apps on the other side are those of `TestApps`.
///
/// ```swift
/// import BlackBerryDynamicsTesting
///
/// let apps = try await TestApps()
/// let app = GDTestApp("com.example.notes", in: apps)
/// GDiOS.sharedInstance().authorizeAutonomously()
/// await app.settle()
/// await app.end()
/// await apps.stop()
/// ```
///
/// A process has one such app at a time. Its management file and its container are in the folder of
/// the test, and a misuse is recorded.
public final class GDTestApp: Sendable {
  /// The queue of events, notifications and delegates.
  public let queue = DispatchQueue(label: "opendynamics.test.gd")
  /// Uses of the runtime before the first authorization.
  public let misuses = GDMisuse.Record()
  /// The path of the management file.
  public let managementPath: String
  private let state: Guarded<State>

  /// By the paths of their management files: the next process of an app has the same person and owner.
  private static let others = Guarded<[String: Guarded<State>]>([:])

  private struct State {
    var password = "correct horse"
    var typed: [String] = []
    /// The new password that was typed last, which may have been refused.
    var next: String?
    var answers = true
    var asked: [GDQuestion.Kind] = []
    var told: [GDCallback] = []
    var members: [String: ServiceValue] = [:]
    var serial: Int64 = 0
  }

  /// Sets the configuration of the process. `password` is what the person types, also as the first
  /// one; nil: the one that the last process of this app has, else `correct horse`. With a relay the app has push. Ends the program while another app of the process has not
  /// ended.
  public init(
    _ id: String, in apps: TestApps, password: String? = nil, relay: TestRelay? = nil,
    configuration change: (inout GDConfiguration) -> Void = { _ in }
  ) {
    let path = apps.directory.path + "/\(id).management.json"
    let state = Self.others.withLock { others in
      let state = others[path] ?? Guarded(State())
      others[path] = state
      return state
    }
    state.withLock { state in
      (state.typed, state.asked, state.told, state.answers) = ([], [], [], true)
      if let next = state.next.take() { state.password = next }
      if let password { state.password = password }
    }
    self.state = state
    managementPath = path
    var configuration = GDConfiguration()
    configuration.applicationID = id
    configuration.name = id
    (configuration.entitlementID, configuration.entitlementVersion) = (nil, nil)
    configuration.services = []
    configuration.container = apps.directory.appendingPathComponent(id)
    configuration.management = managementPath
    configuration.serviceOptions.broker = apps.socketPath
    configuration.containerOptions.passwordHash = .cheapest
    configuration.callbackQueue = queue
    configuration.onMisuse = misuses.add
    configuration.relay = relay?.deviceURL
    configuration.onCallback = { callback in state.withLock { $0.told.append(callback) } }
    configuration.answer = { question in
      let text: String? = state.withLock { state in
        state.asked.append(question.kind)
        if question.kind != .passwordChange, let next = state.next.take() { state.password = next }
        guard state.answers else { return nil }
        return state.typed.isEmpty ? state.password : state.typed.removeFirst()
      }
      guard let text, let secret = try? SecretBytes(utf8: text) else { return .none }
      guard question.kind == .passwordChange else { return .secret(secret) }
      // The last text that was typed here is the password once nothing asks for another one.
      let old = state.withLock { state in
        defer { state.next = text }
        return state.password
      }
      guard let old = try? SecretBytes(utf8: old) else { return .none }
      return .change(old: old, new: secret)
    }
    change(&configuration)
    GDConfiguration.current = configuration
  }

  /// Ends the process of the app, as far as the app sees it. Another one with the same id has its
  /// container. Objects that were made before belong to the app that has ended.
  public func end() async { await GDConfiguration.endApp() }

  /// Returns when the events of what happened so far were told. Attempts, requests and replies that
  /// are under way are not waited for.
  public func settle() async { await GDConfiguration.settle() }

  /// The calls of the app's delegates and the notifications so far, in order.
  public var callbacks: [GDCallback] { state.withLock { $0.told } }

  // MARK: The person

  /// What was asked for, in order.
  public var asked: [GDQuestion.Kind] { state.withLock { $0.asked } }

  /// Texts that the person types next, before the password: wrong ones, or a code.
  public func type(_ texts: String...) { state.withLock { $0.typed += texts } }

  /// Whether the person answers questions from now on.
  public func setAnswers(_ answers: Bool) { state.withLock { $0.answers = answers } }

  // MARK: The owner

  /// Changes members of the management file, and writes it with the next serial; nil removes a
  /// member. Returns when a runtime that has begun did what the file says. Throws
  /// `managementRefused`, and errors of the file system.
  public func manage(_ members: [String: ServiceValue?]) async throws {
    let text = state.withLock { state in
      for (name, value) in members { state.members[name] = value }
      state.serial += 1
      let file = state.members.merging(["version": 1, "serial": .integer(state.serial)]) { $1 }
      return JSONWriter.text(of: .object(file))
    }
    let (path, runtime) = (managementPath, GDConfiguration.runtime)
    try await BlockingCall.run {
      try Data(text.utf8).write(to: URL(fileURLWithPath: path), options: .atomic)
      try runtime?.readManagement()
    }
  }

  /// Destroys the app's container. The next process is activated anew. Throws `notAuthorized` when
  /// the app is not authorized.
  public func wipe() async throws {
    guard let container = try GDConfiguration.runtime?.container else {
      throw AppRuntimeError(.notAuthorized)
    }
    try await manage(["wipe": .string(container.store.id.hex)])
    // It names a container that is no more.
    state.withLock { $0.members["wipe"] = nil }
  }

  /// Locks the app remotely until the person types the code.
  public func lock(code: String) async throws {
    let hash = try SecretHash(hashing: SecretBytes(utf8: code), parameters: .cheapest)
    let serial = state.withLock { $0.serial + 1 }
    try await manage(["locked": .integer(serial), "unlockCode": .string(hash.text)])
  }
}
