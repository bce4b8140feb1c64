import AppKineticsTesting
import Foundation
import Locks
import SecureFiles
import Testing

@testable import LauncherPage

/// What a page shows and does for whoever is in.
@Suite(.timeLimit(.minutes(2)))
struct PageTests {
  private struct Inbox: Decodable {
    struct Message: Decodable {
      var directory: String
      var app: String
      var files: Int
      var names: [String]
    }
    var messages: [Message]
    var count: Int
  }

  private struct Messages: Decodable {
    struct Message: Decodable {
      var request: String
      var app: String
      var state: String
      var bytes: UInt64
    }
    var sent: [Message]
    var arriving: [Message]
  }

  private func read<Value: Decodable>(_ name: String, of tab: Tab, as type: Value.Type = Value.self) throws
    -> Value
  {
    try JSONDecoder().decode(type, from: Data(try #require(tab.parts[name]).utf8))
  }

  @Test func aPersonDrivesTheLauncher() async throws {
    try await withTestApps { world in
      let other = try await world.start("com.example.other")
      var fronts = other.services.frontChanges.makeAsyncIterator()
      let app = try await world.startManaged("com.example.app")
      try await world.bringToFront(app.id)
      try await pageOf(app, in: world) { browser in
        let session = try await browser.enter()
        let tab = Tab(try await browser.events(session))
        #expect(await tab.read { $0["apps"]?.contains("com.example.other") == true })
        #expect(tab.parts["launcher"]?.contains(#""presented":"coachMark""#) == true)
        #expect(try await browser.act(session, #"{"kind":"dismiss"}"#) == .init())
        #expect(try await browser.act(session, #"{"kind":"dismiss"}"#) == .init(ignored: "unchanged"))
        let move = #"{"kind":"move","place":{"x":0.25,"y":0},"orientation":"landscape"}"#
        #expect(try await browser.act(session, move) == .init())
        #expect(try await browser.act(session, #"{"kind":"tap"}"#) == .init())
        #expect(try await browser.act(session, move) == .init(ignored: "panelOpen"))
        #expect(await tab.read { $0["launcher"]?.contains(#""view":"open""#) == true })
        #expect(tab.parts["launcher"]?.contains(#""landscape":{"x":1,"y":1}"#) == true)
        #expect(try await browser.act(session, #"{"kind":"certificates"}"#) == .init())
        let own = try await #require(app.runtime.launcher?.certificates()).own
        #expect(await tab.read { $0["certificates"]?.contains(own) == true })
        #expect(try await browser.act(session, #"{"kind":"app","id":"com.example.other"}"#) == .init())
        #expect(await fronts.next() == true)
        #expect(await tab.read { $0["launcher"]?.contains(#""view":"closed""#) == true })
        #expect(tab.parts["launcher"]?.contains(#""x":0.25"#) == true)
        // What makes no sense changes nothing.
        for action in [
          #"{"kind":"app","id":"not an id"}"#, #"{"kind":"app"}"#, #"{"kind":"move"}"#,
          #"{"kind":"setting"}"#,
          #"{"kind":"saveFile"}"#, #"{"kind":"cancelSent","id":"x","app":"y"}"#,
        ] { #expect(try await browser.act(session, action).ignored != nil, "\(action)") }
        for body in ["", "{}", #"{"kind":"nothing"}"#, "[]", String(repeating: "[", count: 60_000)] {
          let answer = try await browser.ask("POST", "/do", ["Launcher-Session": session.header], body: body)
          #expect(answer.status == 400)
        }
      }
    }
  }

  /// The page of the launcher that shows all apps: how many messages there are, and nothing of what is in them.
  @Test func aloneItShowsCountsWithoutNames() async throws {
    struct Traffic: Decodable {
      struct Way: Decodable, Equatable {
        var (count, waiting, bytes, done) = (UInt64(0), UInt64(0), UInt64(0), UInt64(0))
      }
      var apps: [String: [String: Way]]
    }
    try await withTestApps { world in
      let receiver = try await world.start("com.example.receiver")
      try receiver.services.offer(WellKnownService.saveFiles.definition) { _ in .noReply }
      try await receiver.services.setState(.locked)
      let sender = try await world.start("com.example.sender")
      try sender.put("plans", at: "/secret plans.txt")
      try await pageOf(try await world.startLauncher(), in: world) { browser in
        let session = try await browser.enter()
        let tab = Tab(try await browser.events(session))
        #expect(await tab.read { $0["apps"]?.contains("com.example.sender") == true })
        #expect(tab.parts["launcher"]?.contains(#""staysOpen":true"#) == true)
        let sent = try await sender.services.send(
          ServiceRequest(
            WellKnownService.saveFiles.definition, "saveFiles", attachments: ["/secret plans.txt"]),
          to: receiver.id)
        #expect(await tab.read { $0["traffic"]?.contains("com.example.sender") == true })
        let traffic: Traffic = try read("traffic", of: tab)
        let way = Traffic.Way(count: 1, waiting: 1, bytes: 5, done: 0)
        #expect(traffic.apps == ["com.example.sender": ["sent": way]])
        for part in tab.parts.values { #expect(!part.contains("plans") && !part.contains("\(sent.id)")) }
        // Nor can it take anything of others back.
        let cancel = #"{"kind":"cancelSent","id":"\#(sent.id)","app":"com.example.receiver"}"#
        #expect(try await browser.act(session, cancel).ignored == "over")
        #expect(try await browser.act(session, #"{"kind":"close"}"#) == .init(ignored: "unchanged"))
        #expect(try await browser.act(session, #"{"kind":"app","id":"com.example.sender"}"#) == .init())
        try await receiver.services.setState(.running)
        try await sent.delivered()
        #expect(await tab.read { $0["traffic"] == #"{"apps":{}}"# })
      }
    }
  }

  @Test func messagesAreSeenAndTakenBack() async throws {
    try await withTestApps { world in
      let other = try await world.start("com.example.other") { services in
        try services.offer(WellKnownService.saveFiles.definition) { _ in .noReply }
      }
      try await other.services.setState(.locked)
      let app = try await world.startManaged("com.example.app") { _, services in
        try services.offer(WellKnownService.saveFiles.definition) { _ in .noReply }
      }
      try await pageOf(app, in: world) { browser in
        let session = try await browser.enter()
        let tab = Tab(try await browser.events(session))
        let opened = try app.runtime.opened()
        try opened.container.files.write(Data(count: 5000), toPath: "/a")
        let request = ServiceRequest(WellKnownService.saveFiles.definition, "saveFiles", attachments: ["/a"])
        _ = try await opened.services.send(request, to: other.id)
        #expect(await tab.read { $0["messages"]?.contains(#""state":"locked""#) == true })
        let messages: Messages = try read("messages", of: tab)
        let sent = try #require(messages.sent.first)
        #expect(messages.sent.count == 1 && sent.app == "com.example.other" && sent.bytes == 5000)
        let cancel = #"{"kind":"cancelSent","id":"\#(sent.request)","app":"\#(sent.app)","isReply":false}"#
        #expect(try await browser.act(session, cancel) == .init())
        #expect(await tab.read { $0["messages"]?.contains(#""sent":[]"#) == true })
        #expect(try await browser.act(session, cancel) == .init(ignored: "over"))
        // What arrives waits until there is room, and can be refused.
        app.faults.hasFullDisk = true
        try other.container.files.write(Data(count: 4 << 20), toPath: "/b")
        let back = ServiceRequest(WellKnownService.saveFiles.definition, "saveFiles", attachments: ["/b"])
        let coming = try await other.services.send(back, to: app.id)
        #expect(await tab.read { $0["messages"]?.contains(#""state":"storage""#) == true })
        #expect(
          try await browser.act(
            session, #"{"kind":"cancelArriving","id":"\#(coming.id)","app":"com.example.other"}"#) == .init())
        await #expect(throws: ServicesError.self) { try await coming.delivered() }
        #expect(await tab.read { $0["messages"]?.contains(#""arriving":[]"#) == true })
        app.faults.hasFullDisk = false
      }
    }
  }

  @Test func filesOfTheInboxAreSavedOpenedAndRemoved() async throws {
    try await withTestApps { world in
      let other = try await world.start("com.example.other")
      let app = try await world.startManaged("com.example.app") { _, services in
        try services.offer(WellKnownService.saveFiles.definition) { _ in .noReply }
      }
      // The container has no control characters in names of others.
      let hostile = "..\u{202E}<img src=x onerror=alert(1)>"
      try await send("report.pdf", hostile, ".bashrc", to: app, from: other)
      let opened = TestList()
      try await pageOf(app, in: world) {
        $0.opens = { opened.add($0) }
      } _: { browser in
        let session = try await browser.enter()
        let tab = Tab(try await browser.events(session))
        #expect(await tab.read { $0["inbox"]?.contains("report.pdf") == true })
        let inbox: Inbox = try read("inbox", of: tab)
        let message = try #require(inbox.messages.first)
        #expect(inbox.count == 1 && message.files == 3 && message.app == "com.example.other")
        #expect(Set(message.names) == ["report.pdf", hostile, ".bashrc"])
        func act(_ kind: String, _ path: String) async throws -> PageBrowser.Outcome {
          let path = String(decoding: try JSONEncoder().encode(path), as: UTF8.self)
          return try await browser.act(session, #"{"kind":"\#(kind)","path":\#(path)}"#)
        }
        for (number, name) in ["report.pdf", "report-2.pdf", "report-3.pdf"].enumerated() {
          let saved = try await act("saveFile", message.directory + "/report.pdf").saved
          #expect(saved == world.directory.path + "/" + name, "\(number)")
          #expect(
            try String(contentsOfFile: try #require(saved), encoding: .utf8) == "contents of report.pdf")
          let modes = try FileManager.default.attributesOfItem(atPath: try #require(saved))[.posixPermissions]
          #expect(modes as? Int == 0o600)
        }
        // A name that would hide the file, or play with a terminal.
        for (name, plain) in [(hostile, "_._<img src=x onerror=alert(1)>"), (".bashrc", "_bashrc")] {
          let saved = try await act("saveFile", message.directory + "/" + name).saved
          #expect(saved == world.directory.path + "/" + plain)
        }
        #expect(try await act("openFile", message.directory + "/report.pdf") == .init())
        #expect(opened.all == [message.directory + "/report.pdf"])
        // Only what is in the inbox.
        let container = try app.runtime.container
        try container.files.write(Data("own".utf8), toPath: "/own")
        try container.files.createSymbolicLink(
          atPath: message.directory + "/link", withDestinationPath: "/own")
        for path in [
          "/own", "own", "", "/", "/Inbox", message.directory, message.directory + "/../../../own",
          message.directory + "/link", message.directory + "/nothing", "/.opendynamics/key",
        ] {
          #expect(try await act("saveFile", path).saved == nil, "\(path)")
          #expect(try await act("openFile", path).ignored == "unknown", "\(path)")
        }
        #expect(opened.all.count == 1)
        #expect(try await act("saveMessage", message.directory).saved == world.directory.path)
        #expect(FileManager.default.fileExists(atPath: world.directory.path + "/report-4.pdf"))
        for path in ["/own", "/Inbox", "/Inbox/com.example.other"] {
          #expect(try await act("removeMessage", path) == .init(ignored: "over"))
        }
        #expect(try await act("removeMessage", message.directory) == .init())
        #expect(await tab.read { $0["inbox"]?.contains(#""messages":[]"#) == true })
        #expect(try container.inboxMessages().isEmpty && container.files.fileExists(atPath: "/own"))
      }
      // A folder that is not there: nothing is lost, and why is said.
      try await send("again.txt", to: app, from: other)
      try await pageOf(app, in: world) {
        $0.savesTo = URL(filePath: "/nowhere/at/all")
      } _: { browser in
        let session = try await browser.enter()
        let directory = try #require(app.runtime.container.inboxMessages().first).directory
        let outcome = try await browser.act(session, #"{"kind":"saveFile","path":"\#(directory)/again.txt"}"#)
        #expect(outcome.error?.contains("/nowhere/at/all/again.txt") == true && outcome.saved == nil)
        #expect(
          try await browser.act(session, #"{"kind":"openFile","path":"\#(directory)/again.txt"}"#).ignored
            == "unknown")
      }
    }
  }

  @Test func aTabGetsOnlyWhatItDoesNotHave() async throws {
    try await withTestApps { world in
      let app = try await world.startManaged("com.example.app")
      try await pageOf(app, in: world) { browser in
        let session = try await browser.enter()
        let tab = Tab(try await browser.events(session))
        #expect(await tab.read { $0.count >= 5 })
        struct Line: Decodable {
          var part: String
          var number: UInt64
        }
        let numbers = try tab.lines.map { try JSONDecoder().decode(Line.self, from: Data($0.utf8)) }
        let have = Dictionary(numbers.map { ($0.part, $0.number) }) { $1 }
        let text = String(decoding: try JSONEncoder().encode(have), as: UTF8.self)
        let back = Tab(try await browser.events(session, have: text))
        #expect(try await browser.act(session, #"{"kind":"tap"}"#) == .init())
        #expect(await back.read { $0["launcher"]?.contains("open") == true })
        #expect(back.parts["apps"] == nil && back.parts["app"] == nil)
        // Of five tabs the oldest makes room, and is told so.
        let other = try await browser.enter()
        var others: [Tab] = []
        for _ in 0..<3 { others.append(Tab(try await browser.events(other))) }
        #expect(await tab.read { $0["displaced"] == "null" })
        #expect(await tab.ends())
        #expect(try await browser.act(session, #"{"kind":"tap"}"#) == .init())
        #expect(await back.read { $0["launcher"]?.contains("closed") == true })
      }
    }
  }

  @Test func ofManySessionsTheLeastUsedEnds() throws {
    var sessions = PageSessions(time: .seconds(60))
    var grants: [PageSessions.Grant] = []
    for number in 0...PageSessions.countMax {
      let token = sessions.drawToken()
      #expect(sessions.exchange("\(token)0", at: .zero) == nil)
      let grant = sessions.exchange(token, at: .seconds(number))
      grants.append(try #require(grant))
      #expect(sessions.exchange(token, at: .zero) == nil)
    }
    #expect(sessions.sessions.count == PageSessions.countMax)
    let isIn = grants.map { sessions.id(of: "\($0.id).\($0.secret)") != nil }
    #expect(isIn == [false] + Array(repeating: true, count: PageSessions.countMax))
  }

  @Test func aCopyInPlainEndsWithASeal() async throws {
    try await withTestApps { world in
      let app = try await world.startManaged("com.example.app")
      let container = try app.runtime.container
      try container.files.write(Data(count: 5 << 20), toPath: "/large")
      let folder = world.directory.path + "/plain"
      try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: false)
      let left = Guarded(3)
      #expect(throws: CocoaError.self) {
        try PlainCopy.make(of: "/large", container.files, in: folder) {
          left.withLock { left in
            left -= 1
            return left > 0
          }
        }
      }
      #expect(try FileManager.default.contentsOfDirectory(atPath: folder).isEmpty)
    }
  }

  @Test func picturesAreSmall() {
    func png(_ width: UInt32, _ height: UInt32) -> Data {
      var data = Data([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a, 0, 0, 0, 13, 0x49, 0x48, 0x44, 0x52])
      for side in [width, height] { withUnsafeBytes(of: side.bigEndian) { data.append(contentsOf: $0) } }
      return data
    }
    #expect(PagePicture.text(png(64, 1024)) != nil && PagePicture.name(png(64, 64)) != nil)
    for data in [
      png(16_000, 16_000), png(64, 1025), png(0, 64), png(1 << 31, 1), Data(png(64, 64).prefix(23)),
      Data("GIF89a".utf8),
    ] {
      #expect(PagePicture.text(data) == nil && PagePicture.name(data) == nil)
    }
  }

  @Test func aLinkOfAnotherProcessStays() async throws {
    try await withTestApps { world in
      let place = world.directory.appending(path: "run-link")
      let (first, second) = (
        try PageLink(in: place, for: "com.example.app"), try PageLink(in: place, for: "com.example.app")
      )
      try first.lead(to: "http://127.0.0.1:1/#first")
      try second.lead(to: "http://127.0.0.1:2/#second")
      first.remove()
      #expect(try String(contentsOf: second.url, encoding: .utf8).contains("#second"))
      second.remove()
      #expect(!FileManager.default.fileExists(atPath: second.url.path))
    }
  }

  // MARK: Limits

  /// A server that says who asked.
  private func withServer(
    _ time: Duration, _ body: @escaping @Sendable (String) async throws -> Void
  ) async throws {
    let server = try await PageServer(time: time)
    server.start { request in
      PageServer.Answer(
        status: .ok, headers: [], body: .whole(Array("\(request.method) \(request.path)".utf8)),
        isOfSession: request.path == "/mine")
    }
    do {
      try await body(server.origin)
    } catch {
      await server.stop()
      throw error
    }
    await server.stop()
  }

  /// The first line that comes for bytes; nil when the connection ends without one, and `silence` when nothing happens.
  private func first(_ text: String, _ origin: String) async throws -> String? {
    try await BlockingCall.run {
      let connection = try RawConnection(origin)
      connection.send(Array(text.utf8))
      return connection.line() ?? (connection.hasTimedOut ? "silence" : nil)
    }
  }

  private static let good = "GET /x HTTP/1.1\r\nHost: a\r\n\r\n"
  private static let answered = "HTTP/1.1 200 OK"

  @Test(arguments: [
    "GET /\(String(repeating: "a", count: 1 << 20)) HTTP/1.1\r\n\r\n",
    "GET / HTTP/1.1\r\n\(String(repeating: "A: b\r\n", count: 100_000))\r\n",
    "GET / HTTP/1.1\r\nA: \(String(repeating: "b", count: 1 << 20))\r\n\r\n",
    "POST / HTTP/1.1\r\nContent-Length: 70000\r\n\r\n\(String(repeating: "b", count: 70_000))",
    "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n\(String(repeating: "4\r\nabcd\r\n", count: 20_000))0\r\n\r\n",
    "POST / HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n", "\0\0\0\0\r\n\r\n", "GET\r\n\r\n",
    "GET / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
  ])
  func whatIsTooLargeOrNoRequestIsNotKept(text: String) async throws {
    // No time is over in this test: it is refused for what it is.
    try await withServer(.seconds(60)) { origin in
      let answer = try await self.first(text, origin)
      #expect(answer.map { $0.contains(" 4") } ?? true, "\(text.prefix(60)): \(answer ?? "closed")")
      let other = try await self.first(Self.good, origin)
      #expect(other == Self.answered)
    }
  }

  @Test func whoIsSlowIsLetGo() async throws {
    try await withServer(.milliseconds(300)) { origin in
      for text in ["", "GET / HT", "POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\nabc"] {
        let answer = try await self.first(text, origin)
        #expect(answer == nil)
      }
    }
  }

  @Test func manyThatSayNothingKeepNobodyOut() async throws {
    try await withServer(.seconds(60)) { origin in
      let idle = try await BlockingCall.run {
        PageBrowser.Unchecked(try (0..<160).map { _ in try RawConnection(origin) })
      }
      let other = try await self.first(Self.good, origin)
      #expect(other == Self.answered)
      // The oldest have gone for it, and not more than that.
      let gone = try await BlockingCall.run { idle.value.prefix(32).allSatisfy { $0.isOver() } }
      #expect(gone)
      let last = try await BlockingCall.run {
        idle.value[159].send(Array(Self.good.utf8))
        return idle.value[159].line()
      }
      #expect(last == Self.answered)
    }
  }

  @Test func namesForPlainFilesAreSafe() {
    for (name, plain) in [
      ("a.txt", "a.txt"), ("/x/y/z", "z"), (".", "_"), ("-rf", "_rf"), ("a\u{0}b", "a_b"), ("", "file"),
      ("\u{200F}\u{2066}x", "__x"), ("ä ö", "ä ö"), ("/", "file"), ("a\u{2028}b", "a_b"),
      // A slash and a mark behind it are one character.
      ("/docs/\u{200D}x", "_x"), ("/docs/\u{301}x", "\u{301}x"),
    ] { #expect(PlainCopy.safeName(name) == plain) }
  }
}

/// A list that several threads write.
final class TestList: Sendable {
  private let items = Guarded<[String]>([])
  var all: [String] { items.withLock { $0 } }
  func add(_ item: String) { items.withLock { $0.append(item) } }
}
