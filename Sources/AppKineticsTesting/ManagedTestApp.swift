@_exported public import AppRuntime
public import Foundation
import Locks
import SecureFiles
import SodiumPrimitives

/// An app of a test with its runtime: what is installed, one process after another, its person and its owner.
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
    guard let runtime = state.withLock({ $0.runtime }) else {
      preconditionFailure("no process of \(id) runs; call start()")
    }
    return runtime
  }

  /// The container, while the app is authorized. Throws `notAuthorized`.
  public var container: SecureContainer { get throws { try runtime.container } }
  /// The file manager of the container, while the app is authorized. Throws `notAuthorized`.
  public var files: SecureFileManager { get throws { try container.files } }
  /// The services, while the app is authorized. Throws `notAuthorized`.
  public var services: AppServices { get throws { try runtime.services } }

  /// Writes a file into the container, with the folders that its path names. Throws what Foundation's `FileManager` throws, and
  /// `notAuthorized`.
  public func put(_ contents: Data, at path: String) throws { try files.put(contents, at: path) }

  /// Writes a text as UTF-8, as ``put(_:at:)-(Data,_)`` does.
  public func put(_ text: String, at path: String) throws { try put(Data(text.utf8), at: path) }

  /// The paths of all files in the inbox, sorted. Throws what Foundation's `FileManager` throws, and `notAuthorized`.
  public func inboxFiles() throws -> [String] { try files.inboxFiles() }

  /// Starts a process of the app. It asks for the password, or for the first one. Throws `alreadyRunning` while another process runs, and
  /// `stateUnusable`.
  @discardableResult
  public func start() async throws -> AppRuntime { try await start { _ in } }

  /// With other options or another preparation for this process.
  @discardableResult
  package func start(
    prepare: AppRuntime.Preparation? = nil, at url: URL? = nil,
    options change: (inout AppRuntime.Options) -> Void
  ) async throws -> AppRuntime {
    var options = options
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
    state.withLock { $0.runtime = runtime }
    return runtime
  }

  /// Ends the process in good order; what is installed stays. Does nothing without one.
  public func end() async { await state.withLock { $0.runtime.take() }?.stop() }

  /// Ends the process as SIGKILL does: channels break, and nothing more is stored, answered or said. Does nothing without one.
  public func kill() async {
    guard let runtime = state.withLock({ $0.runtime.take() }) else { return }
    if let opened = try? runtime.opened() {
      _ = try? opened.container.close(.now, because: "the process was killed")
      opened.services.beginHolding()
    }
    await runtime.stop()
  }

  /// Breaks the connections with other apps; they are made again when they are needed.
  public func breakChannels() async { await (try? runtime.opened())?.services.cutChannels() }

  /// Returns when what happened so far is saved, and the app was told of it.
  public func settle() async {
    await state.withLock { $0.runtime }?.settle()
    await withCheckedContinuation { continuation in eventQueue.async { continuation.resume() } }
  }

  // MARK: The person

  /// The person types the password, or `text`. The first one activates the app. Throws what `AppRuntime.activate(passphrase:)` and
  /// `AppRuntime.authorize(passphrase:)` throw.
  public func typePassword(_ text: String? = nil) async throws {
    let runtime = runtime
    let typed = try SecretBytes(utf8: text ?? state.withLock { $0.password })
    if runtime.authorization.activation == .notActivated {
      try await runtime.activate(passphrase: typed)
    } else {
      try await runtime.authorize(passphrase: typed)
    }
  }

  /// The person types wrong passwords. Throws every error but `wrongPassword`.
  public func typeWrongPassword(times count: Int = 1) async throws {
    for _ in 0..<count {
      do {
        try await typePassword("not " + state.withLock { $0.password })
      } catch let error as AppRuntimeError where error.code == .wrongPassword {}
    }
  }

  /// The person types an unlock code. Throws what `AppRuntime.unlock(code:)` throws.
  public func typeCode(_ code: String) async throws {
    try await runtime.unlock(code: SecretBytes(utf8: code))
  }

  /// The person chooses another password, which ``typePassword(_:)`` types from now on. Throws what
  /// `AppRuntime.changePassword(_:to:)` throws.
  public func changePassword(to new: String) async throws {
    let old = state.withLock { $0.password }
    try await runtime.changePassword(SecretBytes(utf8: old), to: SecretBytes(utf8: new))
    state.withLock { $0.password = new }
  }

  // MARK: The owner

  /// Changes members of the management file, and writes it with the next serial; nil removes a member. Returns when the process that runs
  /// has done what the file says. Throws `managementRefused`.
  public func manage(_ members: [String: ServiceValue?]) async throws {
    let text = try state.withLock { state in
      for (name, value) in members { state.members[name] = value }
      state.serial += 1
      let all = state.members.merging(["version": 1, "serial": .integer(state.serial)]) { _, new in new }
      return try ServiceValue.object(all).jsonText(root: "management")
    }
    try await manage(text: Data(text.utf8))
  }

  /// Writes a management file as it stands, and returns when the process that runs has read it. Throws `managementRefused`.
  public func manage(text: Data) async throws {
    guard let path = options.management?.path else { return }
    let runtime = state.withLock { $0.runtime }
    try await BlockingCall.run {
      try text.write(to: URL(fileURLWithPath: path), options: .atomic)
      try runtime?.readManagement()
    }
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
