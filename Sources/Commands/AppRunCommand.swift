import AppKinetics
import AppRuntime
import ArgumentParser
import Foundation
import SecureFiles

struct AppRunCommand: ParsableCommand, ReportingCommand {
  static let configuration = CommandConfiguration(
    commandName: "run", abstract: "Runs an app that takes files from other apps, until it is interrupted.",
    discussion: """
      It registers with the broker and offers transfer-file, save-files and greetings. Files that come are moved from the inbox to a folder of the \
      container, under a name that is free there; with --launcher and without --save-to they stay in the inbox, where a person sees them. Each event is a line.
      """)

  @OptionGroup var app: AppOptions

  @Option(help: ArgumentHelp("Where files that came are kept (/Documents).", valueName: "folder"))
  var saveTo: String?

  @Option(
    help: ArgumentHelp(
      "Takes requests of this app only: an app id, or the fingerprint of its key. Can be repeated.",
      valueName: "app"))
  var from: [String] = []

  @Option(
    help: ArgumentHelp(
      "The management file of the app's owner, who may lock, block and wipe it; see dynamics manage.",
      valueName: "file"), completion: .file())
  var managed: String?

  @Flag(help: "Shows the app's launcher to a browser: prints the file that leads there.")
  var launcher = false

  @Flag(help: "Prints each event as a JSON object on a line of its own.")
  var json = false

  @Flag(help: "Draws the progress bar of what arrives although standard error is no terminal.")
  var progress = false

  @Flag(help: "Begins locked: requests wait, and those without files are refused after 30 s.")
  var locked = false

  var reportsJSON: Bool { json }

  func validate() throws {
    if locked, managed != nil || launcher { throw ValidationError(Self.lockedIsManaged) }
    let names = (saveTo ?? Self.documents).split(separator: "/")
    guard let first = names.first, first != "Inbox", first != ".opendynamics",
      names.allSatisfy({ $0 != ".." && $0 != "." && $0.utf8.count <= 255 })
    else {
      throw ValidationError("--save-to names a folder of the app's own, such as /Documents.")
    }
  }

  private static let documents = "/Documents"
  private static let lockedIsManaged =
    "--locked is for an app without --managed and --launcher: those are locked by their owner, or by a person who asks for the password."

  private static func caller(_ text: String) throws -> Caller {
    if let caller = try? Caller(fingerprint: text) { return caller }
    try checkApplicationID(text, "--from")
    return Caller(try ApplicationID(text))
  }

  func run() throws {
    let folder = saveTo ?? (launcher ? nil : Self.documents)
    let callers = try Set(from.map(Self.caller))
    let isLocked = locked
    let drawsBar = progress || StandardError.isTerminal
    let report = EventReport(asJSON: json, bar: ArrivalBar(SharedProgressBar(drawsBar ? "receive" : nil)))
    defer { report.flush() }
    @Sendable func offer(_ container: SecureContainer, _ services: AppServices) throws {
      if !callers.isEmpty { try services.take(from: callers) }
      for service in [WellKnownService.transferFile, .saveFiles, .greetings] {
        try services.offer(service.definition, validates: true) { request in
          try await Self.answer(request, folder, container, report)
        }
      }
      Self.follow(services, report)
    }
    if launcher || managed != nil || AppRuntime.isManaged(containerAt: URL(filePath: app.dir)) {
      return try app.runManaged(by: managed, hasLauncher: launcher, report, prepare: offer)
    }
    try app.withServices { services, container in
      try AppRuntime.requireUnmanaged(container)
      try offer(container, services)
      try AsyncWork.run {
        // The app may be in front when it starts, in the place of what stood in for it.
        let frontChanges = services.frontChanges
        if isLocked { try await services.setState(.locked) }
        do {
          try await services.start()
        } catch let error as ServicesError where error.code == .approvalPending {
          report.write(
            AppEvent("waiting for approval", app: services.application.id.text, command: error.detail))
          try await services.start()
        }
        report.write(AppEvent("ready", app: services.application.id.text))
        for await isInFront in frontChanges {
          report.write(AppEvent(isInFront ? "in front" : "not in front"))
        }
        // Not on a signal: there is no broker any more.
        if !Task.isCancelled, let error = services.connectionError { throw error }
      }
    }
  }

  /// Prints what happens to the services until they end.
  private static func follow(_ services: AppServices, _ report: EventReport) {
    let rollbacks = services.rollbacks
    Task {
      for await rollback in rollbacks {
        report.write(
          AppEvent(
            rollback.side == .thisApp ? "this app was put back, says" : "other app was put back",
            app: rollback.application.text, missingCount: rollback.missingCount))
      }
    }
    let arrivals = services.arrivals
    Task {
      for await transfer in arrivals { Task { await Self.report(transfer, report) } }
    }
    let waitingPeers = services.waitingPeers
    Task { await report.follow(waitingPeers) }
  }

  /// What is heard of a message before it is there, and when it will not be.
  private static func report(_ transfer: IncomingTransfer, _ report: EventReport) async {
    let (app, id) = (transfer.sender.text, transfer.request.description)
    let event =
      switch transfer.waitsFor {
      case .unlock: "waiting until unlocked"
      case .resumption: "waiting until resumed"
      case .storage: "waiting for storage"
      case nil: "receiving"
      }
    report.write(
      AppEvent(event, app: app, id: id, fileCount: transfer.fileCount, byteCount: transfer.byteCount))
    do {
      try await report.bar.follow(transfer)
    } catch {
      report.write(AppEvent("not received", app: app, id: id, reason: (error as? ServicesError)?.code.name))
    }
  }

  private static func answer(
    _ request: IncomingRequest, _ folder: String?, _ container: SecureContainer, _ report: EventReport
  ) async throws -> ServiceResponse {
    report.write(
      AppEvent(
        "request", app: request.sender.text, service: request.service.text, method: request.method,
        id: request.id.description, isRedelivered: request.isRedelivered ? true : nil,
        mayBeRepeated: request.mayBeRepeated ? true : nil))
    guard !request.attachments.isEmpty else {
      guard request.service == WellKnownService.greetings.serviceID else { return .reply() }
      // The number in the method's name: greetMe|1.
      let number = request.method.split(separator: "|").last.flatMap { Int($0) }
      return .reply(
        "Hello, \(request.sender).", foreground: number.flatMap(ForegroundPreference.init) ?? .none)
    }
    let response: ServiceResponse = request.method == "sendFiles" ? .noReply : .reply()
    guard let folder else { return response }
    let files = container.files
    try files.createDirectory(atPath: folder, withIntermediateDirectories: true)
    var failure: (any Error)?
    for path in request.attachments {
      // An earlier process may have moved it, and not come to its answer.
      if request.isRedelivered, !files.fileExists(atPath: path) { continue }
      let (event, place): (String, String)
      do {
        (event, place) = ("saved", try move(path, to: folder, files))
      } catch {
        // It stays in the inbox; the others are saved.
        (event, place) = ("not saved", path)
        failure = failure ?? error
      }
      report.write(AppEvent(event, app: request.sender.text, id: request.id.description, path: place))
    }
    if let failure { throw failure }
    // The message's own directory goes with everything that is still in it.
    try await request.removeAttachments()
    return response
  }

  /// Returns the new place: the file's name, or `name-2` and so on.
  private static func move(_ path: String, to folder: String, _ files: SecureFileManager) throws -> String {
    let name = PathText.baseName(path) ?? "file"
    func place(_ number: Int) -> String {
      PathText.joined(folder, FreeName.text(name, number))
    }
    var tried = 0
    while true {
      // Of links, not of what they lead to.
      let number = tried + FreeName.number { (try? files.attributesOfItem(atPath: place(tried + $0))) != nil }
      do {
        try files.moveItem(atPath: path, toPath: place(number))
        return place(number)
      } catch SecureFilesError.fileExists {
        // Another request has taken it just now, or it cannot be read.
        tried = number
      }
    }
  }
}
