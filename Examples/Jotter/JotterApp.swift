import BlackBerryDynamics.Runtime

/// The view of the app.
protocol JotterScreen: AnyObject {
  func show(_ line: String)
  func showError(_ line: String)
  /// Hides the notes behind a reason, until `uncover()`.
  func cover(_ reason: String)
  func uncover()
}

/// The app: its life, and what its owner decides about it.
class JotterApp: NSObject, GDiOSDelegate {
  static let shared = JotterApp()

  var gd = GDiOS.sharedInstance()
  let store = NoteStore()
  let service = NoteService()
  let sender = NoteSender()
  weak var screen: JotterScreen?
  var finish: (Int32) -> Void = { exit($0) }
  /// Seconds that a receiver has to take a note.
  var timeLimit: TimeInterval?

  private(set) var isReadOnly = false
  private(set) var maximumLength = 1000
  private var signature = ""
  private var hasStarted = false
  private var command: Command?
  /// A note that waits for its receiver.
  private var waiting: (text: String, path: String, receiver: String)?

  override init() {
    super.init()
    service.app = self
    sender.app = self
  }

  /// Authorizes the app, and performs the command when that is done.
  func start(_ command: Command) {
    self.command = command
    gd.authorize(self)
  }

  func handle(_ anEvent: GDAppEvent) {
    switch anEvent.type {
    case .authorized: becomeAuthorized()
    case .notAuthorized: loseAuthorization(anEvent)
    case .policyUpdate: readPolicy()
    case .remoteSettingsUpdate: readConfiguration()
    case .servicesUpdate: sendWaiting()
    case .entitlementsUpdate, .backgroundAuthorized, .backgroundNotAuthorized: break
    @unknown default: screen?.showError("unknown event \(anEvent.type.rawValue)")
    }
  }

  /// The event repeats after each unlock.
  private func becomeAuthorized() {
    screen?.uncover()
    guard !hasStarted else { return sendWaiting() }
    hasStarted = true
    do { try store.open() } catch { return fail(error.localizedDescription, ExitCode.failed) }
    readPolicy()
    readConfiguration()
    if let command = command { perform(command) }
  }

  private func loseAuthorization(_ anEvent: GDAppEvent) {
    switch anEvent.code {
    case .errorNone: break
    case .errorIdleLockout, .errorPasswordChangeRequired: screen?.cover("locked")
    case .errorBlocked, .errorRemoteLockout, .errorAppVersionNotEntitled: screen?.cover(anEvent.message)
    case .errorAppDenied, .errorWiped:
      screen?.cover("erased")
      finish(ExitCode.notAuthorized)
    case .errorActivationFailed, .errorProvisioningFailed, .errorPushConnectionTimeout,
      .errorSecurityError:
      fail(anEvent.message, ExitCode.notAuthorized)
    case .errorProgrammaticActivationUnknown, .errorProgrammaticActivationNoNetwork,
      .errorProgrammaticActivationCredentialsFailed, .errorProgrammaticActivationServerCommsFailed,
      .errorProgrammaticActivationAppIntegrityFailed:
      assertionFailure("a person activates Jotter")
    @unknown default: screen?.showError("unknown code \(anEvent.code.rawValue)")
    }
  }

  private func readPolicy() {
    let policy = gd.getApplicationPolicy()
    isReadOnly = policy["readOnly"] as? Bool ?? false
    maximumLength = policy["maximumLength"] as? Int ?? 1000
    if isReadOnly { screen?.show("read only") }
  }

  private func readConfiguration() {
    let userID = gd.getApplicationConfig()[GDAppConfigKeyUserId] as? String
    signature = userID.map { " (\($0))" } ?? ""
  }

  func perform(_ command: Command) {
    do {
      switch command {
      case .add(let text):
        if isReadOnly { return fail("the policy forbids new notes", ExitCode.notAuthorized) }
        try store.append(text + signature)
        finish(ExitCode.done)
      case .list:
        for note in try store.notes() { screen?.show(note) }
        finish(ExitCode.done)
      case .share(let file, let receiver):
        let text = (file as NSString).lastPathComponent + signature
        waiting = (text, try store.importFile(file), receiver)
        sendWaiting()
        guard let timeLimit = timeLimit else { return }
        DispatchQueue.main.asyncAfter(deadline: .now() + timeLimit) { [weak self] in self?.cancel() }
      case .serve:
        let count = try store.notes().count
        screen?.show("ready, \(count) notes")
      }
    } catch {
      fail(error.localizedDescription, ExitCode.failed)
    }
  }

  private func fail(_ reason: String, _ code: Int32) {
    screen?.showError(reason)
    finish(code)
  }

  /// Sends the note that waits, if its receiver is there. If not, the next update of services does.
  private func sendWaiting() {
    guard let note = waiting else { return }
    do {
      guard try sender.send(note.text, note.path, to: note.receiver) else {
        screen?.show("waiting for \(note.receiver)")
        return
      }
      waiting = nil
      screen?.show("\(note.receiver) gets \(note.text)")
    } catch {
      waiting = nil
      fail("\(note.receiver): \(sender.explanation(of: error as NSError))", ExitCode.refused)
    }
  }

  /// Takes back a note that was not delivered.
  func cancel() {
    let wasWaiting = waiting != nil
    waiting = nil
    if sender.cancel() > 0 || wasWaiting { fail("taken back", ExitCode.refused) }
  }
}
