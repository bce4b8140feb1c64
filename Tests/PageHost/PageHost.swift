import AppKineticsTesting
import Foundation
import LauncherPage
import Locks
import SecureFiles

/// An app with a launcher's page, apps beside it, and a broker, for tests in a browser: each line of standard input does one thing, and is
/// answered by one line.
@main
struct PageHost {
  static func main() async throws {
    let world = try await TestApps()
    let host = try await Host(world)
    say("link \(host.page.link.path)")
    for await line in lines() {
      let answer: String
      do { answer = try await host.act(line.split(separator: " ", maxSplits: 3).map(String.init)) } catch {
        answer = "error \(error)"
      }
      say(answer)
    }
    await host.page.stop()
    await world.stop()
  }

  private static func say(_ text: String) { FileHandle.standardOutput.write(Data((text + "\n").utf8)) }

  private static func lines() -> AsyncStream<String> {
    AsyncStream { continuation in
      Thread.detachNewThread {
        while let line = readLine() { continuation.yield(line) }
        continuation.finish()
      }
    }
  }
}

/// Writes down what the page has led to.
final class Delegate: LauncherDelegate {
  let told = Guarded<[String]>([])
  private func tell(_ text: String) { told.withLock { $0.append(text) } }
  func launcher(_ launcher: Launcher, didSelectSectionAt location: String) { tell("section \(location)") }
  func launcher(_ launcher: Launcher, didSelectActionAt location: String) { tell("action \(location)") }
  func launcher(_ launcher: Launcher, didSelect service: ServiceIdentifier, of providers: [ApplicationID]) {
    tell("service \(service) of \(providers.count)")
  }
  func launcher(_ launcher: Launcher, didSelectSetting id: String) { tell("setting \(id)") }
  func launcherChangesPassword(_ launcher: Launcher) { tell("password") }
}

final class Host: Sendable {
  let page: LauncherPage
  private let world: TestApps
  private let app: ManagedTestApp
  private let delegate = Delegate()
  private let others = Guarded<[String: TestApp]>([:])
  private let opened = Guarded<[String]>([])

  init(_ world: TestApps) async throws {
    self.world = world
    let environment = ProcessInfo.processInfo.environment
    let application = Application(
      id: try ApplicationID("com.example.notes"), name: "Notes", icon: Picture.disk(0x2f, 0x55, 0xd4))
    guard environment["PAGE_ALONE"] == nil else {
      app = try await world.startLauncher()
      page = try await LauncherPage(of: app.runtime, options: Self.options(in: world, opened))
      return
    }
    app = try await world.startManaged(application) {
      container, services in
      try services.offer(WellKnownService.transferFile.definition) { _ in .noReply }
      try services.offer(WellKnownService.saveFiles.definition) { _ in .noReply }
    } options: {
      $0.launcher = [.setShowsCoachMark(false)]
      $0.uploadLogs = {}
    }
    try await world.bringToFront(app.id)
    page = try await LauncherPage(of: app.runtime, options: Self.options(in: world, opened))
    launcher.delegate = delegate
  }

  private static func options(
    in world: TestApps, _ opened: Guarded<[String]>
  ) throws -> LauncherPage.Options {
    let environment = ProcessInfo.processInfo.environment
    var options = LauncherPage.Options()
    options.directory = world.directory.appending(path: "links")
    let folder = world.directory.appending(path: "saved")
    options.savesTo = folder
    try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: false)
    if environment["PAGE_LANGUAGE"] == "ar" {
      options.language = "ar"
      options.texts = arabic
    }
    if let seconds = environment["PAGE_SESSION_SECONDS"].flatMap({ Int($0) }) {
      options.sessionTime = .seconds(seconds)
    }
    options.opens = { path in opened.withLock { $0.append(path) } }
    return options
  }

  static let arabic = [
    "Settings": "الإعدادات", "Log out": "تسجيل الخروج", "Inbox": "البريد الوارد", "On their way": "في الطريق",
    "Apps": "التطبيقات", "Search apps and actions": "البحث في التطبيقات", "Launcher": "المشغّل",
    "Running": "قيد التشغيل", "Certificates": "الشهادات", "Actions": "إجراءات", "Sections": "أقسام",
    "Nothing is on its way.": "لا شيء في الطريق.", "The inbox is empty.": "البريد الوارد فارغ.",
    "Move": "نقل",
    "Not running": "لا يعمل",
  ]

  private var launcher: Launcher { app.runtime.launcher! }

  private func other(_ id: String) throws -> TestApp {
    guard let app = others.withLock({ $0[id] }) else { throw POSIXError(.ENOENT) }
    return app
  }

  func act(_ words: [String]) async throws -> String {
    let rest = words.dropFirst().joined(separator: " ")
    switch words.first {
    case "open": launcher.isOpen = true
    case "close": launcher.isOpen = false
    case "hide": launcher.isButtonHidden = true
    case "show": launcher.isButtonHidden = false
    case "coach": launcher.apply(.setShowsCoachMark(rest != "off"))
    case "base": launcher.apply(.setBase(rest.isEmpty ? nil : rest))
    case "at-once": launcher.apply(.setOpen(true, animated: false))
    // section ID TITLE
    case "section":
      launcher.apply(
        .register(.init(id: words[1], title: words[2...].joined(separator: " "), location: "at:\(words[1])")))
    case "disable": launcher.apply(.setSectionEnabled(id: rest, false))
    case "action":
      launcher.apply(.registerAction(.init(location: words[1], title: words[2...].joined(separator: " "))))
    case "quick":
      launcher.apply(
        .setQuickActions([
          .init(service: try ServiceIdentifier("com.good.gdservice.transfer-file"), title: "Send a file"),
          .init(service: try ServiceIdentifier("com.example.service.print"), title: "Print"),
        ]))
    case "settings":
      launcher.apply(
        .setSettings([
          .init(.changePassword, text: "Change password"), .init(.launcher, text: "Launcher"),
          .init(.uploadLogs, text: "Upload logs"),
          .init(.own("sync"), text: "Synchronise", icon: Picture.disk(0, 0, 0, size: 24), tint: "seagreen"),
        ]))
    // app ID NAME: one that runs, takes files, and has an icon.
    case "app":
      let icon = words[1].contains("plain") ? nil : Picture.disk(0xb0, 0x40, 0x2f)
      let application = Application(
        id: try ApplicationID(words[1]), name: words[2...].joined(separator: " "), icon: icon)
      let app = try await world.app(application)
      try app.services.offer(WellKnownService.transferFile.definition) { _ in .noReply }
      try await app.services.start()
      others.withLock { $0[words[1]] = app }
    case "state":
      let state: ApplicationState =
        words[2] == "locked" ? .locked : words[2] == "suspended" ? .suspended : .running
      try await other(words[1]).services.setState(state)
    case "end": try await world.end(other(words[1]))
    // many APPS SECTIONS: as the model knows them, without processes of their own.
    case "many":
      let (apps, sections) = (Int(words[1])!, Int(words[2])!)
      for i in 0..<sections {
        launcher.apply(.register(.init(id: "s\(i)", title: "Section \(i)", location: "at:\(i)")))
      }
      launcher.apply(
        .appsFound(
          try (0..<apps).map {
            .init(
              application: try ApplicationID("com.example.many\($0)"), name: "Application \($0)",
              icon: Picture.disk(UInt8($0 & 255), 90, 160, size: 16),
              state: $0 % 3 == 0 ? .running : .notRunning,
              isInstalled: true)
          }, at: .zero))
    // between ID NAME BYTES RECEIVER: from one app to another; returns at once.
    case "between":
      let receiver = rest.split(separator: " ").last.map(String.init) ?? ""
      return try await send(
        from: other(words[1]).services, other(words[1]).container, to: ApplicationID(receiver),
        words.dropLast() + [String(words[3].prefix { $0 != " " })])
    // broker stop, or start.
    case "broker": if rest == "stop" { await world.stopBroker() } else { try await world.startBroker() }
    // install ID: one that does not run any more, and can be started.
    case "install": try await world.install(words[1], "/usr/bin/true")
    // receive ID NAME BYTES: a file of so many bytes arrives; returns at once.
    case "receive", "again":
      return try await send(from: other(words[1]).services, other(words[1]).container, to: app.id, words)
    case "send":
      let opened = try app.runtime.opened()
      return try await send(from: opened.services, opened.container, to: ApplicationID(words[1]), words)
    case "full": try other(words[1]).faults.hasFullDisk = words[2] == "yes"
    case "front": try await world.bringToFront(app.id)
    case "lock":
      app.runtime.block(LocalBlock(id: "test", notice: Notice(title: "Blocked", text: "Call the help desk.")))
    case "unlock":
      app.runtime.unblock(id: "test")
      if app.runtime.authorization.asks == .password { try await app.typePassword() }
    case "told":
      return delegate.told.withLock { told in
        defer { told = [] }
        return "told " + told.joined(separator: ", ")
      }
    case "opened": return "opened " + opened.withLock { $0 }.joined(separator: ", ")
    case "saved":
      let place = world.directory.appending(path: "saved").path
      let names = try FileManager.default.contentsOfDirectory(atPath: place).sorted()
      return try "saved "
        + names.map { name in
          let modes =
            try FileManager.default.attributesOfItem(atPath: place + "/" + name)[.posixPermissions] as! Int
          return "\(name) \(String(modes, radix: 8))"
        }.joined(separator: ", ")
    case "inbox": return "inbox \(try app.runtime.opened().container.inboxMessages().count)"
    case "model":
      let model = launcher.model
      let place = model.buttonPlace(.landscape)
      return
        "model \(model.view) \(model.presented) \(model.shownSections.map(\.id).joined(separator: ",")) \(place.x) \(place.y)"
    case "time": return "time \(ProcessInfo.processInfo.processIdentifier)"
    default: return "error unknown"
    }
    await app.settle()
    return "ok"
  }

  private func send(
    from services: AppServices, _ container: SecureContainer, to receiver: ApplicationID, _ words: [String]
  ) async throws -> String {
    let path = "/" + words[2]
    let count = Int(words[3])!
    // Of no bytes: what is there already.
    if count > 0 {
      try await BlockingCall.run {
        guard container.files.createFile(atPath: path, contents: nil) else { throw POSIXError(.EIO) }
        let handle = try SecureFileHandle(
          forWritingTo: container.files.url(forPath: path, isDirectory: false), in: container.files)
        var left = count
        while left > 0 {
          try handle.write(contentsOf: Data(repeating: 7, count: min(left, 1 << 22)))
          left -= min(left, 1 << 22)
        }
        try handle.close()
      }
    }
    let request = ServiceRequest(
      WellKnownService.transferFile.definition, "transferFile", attachments: [path])
    let sent = try await services.send(request, to: receiver)
    return "sent \(sent.id)"
  }
}
