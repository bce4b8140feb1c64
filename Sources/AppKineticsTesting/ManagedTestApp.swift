@_exported public import AppRuntime
public import Foundation
import Locks
import SecureFiles
import SodiumPrimitives

/// An app of a test with its runtime: what is installed, one process after another, its person and
/// its owner.
///
/// ```swift
/// import AppKineticsTesting
///
/// let apps = try await TestApps()
/// let notes = try await apps.startManaged("com.example.notes") { container, services in
///   try services.offer(WellKnownService.greetings.definition) { .reply("Hello, \($0.sender)") }
/// }
/// try await notes.manage(["blocked": ["text": "Call the help desk."]])
/// await notes.settle()
/// print(apps.callbacks.calls(of: notes.id))  // prepare, authorized, notAuthorized -301 managementBlock
/// await apps.stop()
/// ```
public final class ManagedTestApp: Sendable {
  /// The app.
  public let application: Application
  /// The container's directory.
  public let url: URL
  /// What goes wrong for the app.
  public let faults: TestFaults
  private let record: CallbackRecord
  private let options: AppRuntime.Options
  private let prepare: AppRuntime.Preparation
  private let events: AppRuntime.EventHandler
  private let eventQueue: DispatchQueue
  private let state: Guarded<State>

  private struct State {
    var runtime: AppRuntime?
    var observer: RecordingObserver?
    var password: String
    var members: [String: ServiceValue] = [:]
    var serial: Int64 = 0
  }

  init(
    _ application: Application, at url: URL, password: String, options: AppRuntime.Options,
    faults: TestFaults,
    record: CallbackRecord, prepare: @escaping AppRuntime.Preparation,
    events: @escaping AppRuntime.EventHandler
  ) {
    (self.application, self.url, self.faults, self.record) = (application, url, faults, record)
    (self.prepare, self.events) = (prepare, events)
    let queue = options.eventQueue ?? DispatchQueue(label: "opendynamics.test.events")
    var options = options
    options.eventQueue = queue
    (self.options, eventQueue) = (options, queue)
    state = Guarded(State(password: password))
  }

  /// The app's id, to which others send.
  public var id: ApplicationID { application.id }

  // MARK: Processes

  /// The runtime of the process that runs. Ends the program when none does.
  public var runtime: AppRuntime {
    guard let runtime = running else { preconditionFailure("no process of \(id) runs; call start()") }
    return runtime
  }

  private var running: AppRuntime? { state.withLock { $0.runtime } }

  /// Throws `notAuthorized` when no process runs, too.
  private func opened() throws -> AppRuntime {
    guard let running else { throw AppRuntimeError(.notAuthorized, detail: "no process of \(id) runs") }
    return running
  }

  /// The container, while the app is authorized. Throws `notAuthorized`.
  public var container: SecureContainer { get throws { try opened().container } }
  /// The file manager of the container, while the app is authorized. Throws `notAuthorized`.
  public var files: SecureFileManager { get throws { try container.files } }
  /// The services, while the app is authorized. Throws `notAuthorized`.
  public var services: AppServices { get throws { try opened().services } }

  /// Writes a file into the container, with the folders that its path names. Throws what
  /// Foundation's `FileManager` throws, and `notAuthorized`.
  public func put(_ contents: Data, at path: String) throws { try files.put(contents, at: path) }

  /// Writes a text as UTF-8, as ``put(_:at:)-(Data,_)`` does.
  public func put(_ text: String, at path: String) throws { try put(Data(text.utf8), at: path) }

  /// The paths of all files in the inbox, sorted. Throws what Foundation's `FileManager` throws,
  /// and `notAuthorized`.
  public func inboxFiles() throws -> [String] { try files.inboxFiles() }

  /// Those of an app that is authorized. It is no mistake to ask.
  var openServices: AppServices? { (try? running?.opened())?.services }

  /// Starts a process of the app. It asks for the password, or for the first one. Throws
  /// `alreadyRunning` while another process runs, and `stateUnusable`.
  @discardableResult
  public func start() async throws -> AppRuntime { try await start { _ in } }

  /// With other options or another preparation for this process.
  @discardableResult
  package func start(
    prepare: AppRuntime.Preparation? = nil, at url: URL? = nil,
    options change: (inout AppRuntime.Options) -> Void
  ) async throws -> AppRuntime {
    var options = options
    let observer = RecordingObserver(application.id, record, faults)
    options.services.observer = observer
    change(&options)
    let (id, record, events, prepare) = (id, record, events, prepare ?? self.prepare)
    let runtime = try await AppRuntime(
      application, containerAt: url ?? self.url, options: options,
      prepare: { container, services in
        record.note("prepare", in: id)
        try await prepare(container, services)
      },
      events: { event, state in
        record.note(event, in: id)
        events(event, state)
      })
    state.withLock { ($0.runtime, $0.observer) = (runtime, observer) }
    await runtime.settleAtBroker()
    return runtime
  }

  /// Ends the process in good order; what is installed stays. Does nothing without one.
  public func end() async {
    let (runtime, observer) = take()
    await runtime?.stop()
    observer?.end()
  }

  /// Ends the process as SIGKILL does: channels break, nothing more is stored, told, answered or
  /// said, and what was under way is left for the next process. Returns when an opening that was
  /// under way has ended, after 10 s at most. Does nothing without a process.
  public func kill() async {
    let (runtime, observer) = take()
    observer?.silence()
    await runtime?.abandon()
    observer?.end()
  }

  private func take() -> (AppRuntime?, RecordingObserver?) {
    state.withLock { state in
      defer { (state.runtime, state.observer) = (nil, nil) }
      return (state.runtime, state.observer)
    }
  }

  /// Breaks the connections with other apps, and returns how many there were; they are made again
  /// when they are needed.
  @discardableResult
  public func breakChannels() async -> Int { await openServices?.cutChannels() ?? 0 }

  /// Returns when the state of what happened so far is saved, and its events were told. Requests
  /// and replies are not waited for.
  public func settle() async {
    await state.withLock { $0.runtime }?.settle()
    await withCheckedContinuation { continuation in eventQueue.async { continuation.resume() } }
  }

  // MARK: The person

  /// The person types the password, or `text`. The first one activates the app, and is its password
  /// from then on. Throws what `AppRuntime.activate(passphrase:)` and
  /// `AppRuntime.authorize(passphrase:)` throw, and `notAuthorized` when no process runs.
  public func typePassword(_ text: String? = nil) async throws {
    let runtime = try opened()
    let text = text ?? state.withLock { $0.password }
    if runtime.authorization.activation == .notActivated {
      try await runtime.activate(passphrase: SecretBytes(utf8: text))
      state.withLock { $0.password = text }
    } else {
      try await runtime.authorize(passphrase: SecretBytes(utf8: text))
    }
  }

  /// The person types wrong passwords. Throws every error but `wrongPassword`, among them
  /// `notActivated`.
  public func typeWrongPassword(times count: Int = 1) async throws {
    let runtime = try opened()
    for _ in 0..<count {
      do {
        try await runtime.authorize(passphrase: SecretBytes(utf8: "not " + state.withLock { $0.password }))
      } catch let error as AppRuntimeError where error.code == .wrongPassword {}
    }
  }

  /// The person types an unlock code. Throws what `AppRuntime.unlock(code:)` throws.
  public func typeCode(_ code: String) async throws {
    try await opened().unlock(code: SecretBytes(utf8: code))
  }

  /// The person chooses another password, which ``typePassword(_:)`` types from now on. Throws what
  /// `AppRuntime.changePassword(_:to:)` throws.
  public func changePassword(to new: String) async throws {
    let old = state.withLock { $0.password }
    try await opened().changePassword(SecretBytes(utf8: old), to: SecretBytes(utf8: new))
    state.withLock { $0.password = new }
  }

  // MARK: The owner

  /// Changes members of the management file, and writes it with the next serial; nil removes a
  /// member. Returns when the process that runs has done what the file says. Throws
  /// `managementRefused`; then the members are what they were. Those of a text (``manage(text:)``)
  /// are not kept.
  public func manage(_ members: [String: ServiceValue?]) async throws {
    let (all, serial) = state.withLock { state in
      var all = state.members
      for (name, value) in members { all[name] = value }
      return (all, state.serial + 1)
    }
    let file = all.merging(["version": 1, "serial": .integer(serial)]) { _, new in new }
    try await manage(text: JSONSerialization.data(withJSONObject: Self.json(.object(file))))
    state.withLock { $0.members = all }
  }

  /// A management file has arrays of objects, which the params of services have not.
  private static func json(_ value: ServiceValue) throws -> Any {
    switch value {
    case .object(let members): try members.mapValues(json)
    case .array(let elements): try elements.map(json)
    default:
      try JSONSerialization.jsonObject(with: Data(value.jsonText().utf8), options: .fragmentsAllowed)
    }
  }

  /// Writes a management file as it stands, and returns when the process that runs has read it.
  /// Throws `managementRefused`.
  public func manage(text: Data) async throws {
    guard let path = options.management?.path else {
      throw AppRuntimeError(.managementRefused, detail: "the app's options have no management file")
    }
    let runtime = running
    try await BlockingCall.run {
      try text.write(to: URL(fileURLWithPath: path), options: .atomic)
      try runtime?.readManagement()
    }
    if let serial = try? ManagementFile(text).serial { state.withLock { $0.serial = max($0.serial, serial) } }
  }

  /// Locks the app remotely until the person types the code.
  public func lock(code: String) async throws {
    let hash = try SecretHash(hashing: SecretBytes(utf8: code), parameters: .cheapest)
    let serial = state.withLock { $0.serial + 1 }
    try await manage(["locked": .integer(serial), "unlockCode": .string(hash.text)])
  }

  /// Destroys the container that is there now. Throws `notAContainer` without one.
  public func wipe() async throws {
    let id = try await BlockingCall.run { [url] in try Container.id(at: url.path) }
    try await manage(["wipe": .string("\(id)")])
  }
}

extension PasswordHash.Parameters {
  /// The least that Argon2id allows, for passwords of tests.
  package static let cheapest = PasswordHash.Parameters(passes: 1, memoryKiB: 8)
}
