import AppKineticsTesting
import Foundation
import SecureFiles
import SodiumPrimitives
import Testing

@testable import LauncherPage

/// Who sees what of a page (Documentation/LAUNCHER-PAGE.md, "Safety").
@Suite(.timeLimit(.minutes(2)))
struct PageSafetyTests {
  /// An app that is shown, with its page.
  private func withPage(
    _ change: (inout LauncherPage.Options) -> Void = { _ in },
    _ body: @escaping (TestApps, ManagedTestApp, PageBrowser) async throws -> Void
  ) async throws {
    let world = try await TestApps()
    do {
      let app = try await world.startManaged("com.example.app") { _, services in
        try services.offer(WellKnownService.saveFiles.definition) { _ in .noReply }
      }
      try await pageOf(app, in: world, change) { try await body(world, app, $0) }
    } catch {
      await world.stop()
      throw error
    }
    await world.stop()
  }

  // MARK: The link and the token

  @Test func aLinkLeadsInOnceAndIsReplaced() async throws {
    try await withPage { _, _, browser in
      let link = browser.page.link.path
      let modes = try FileManager.default.attributesOfItem(atPath: link)[.posixPermissions] as? Int
      #expect(modes == 0o600)
      let token = try browser.token()
      #expect(token.count == 64)
      _ = try await browser.enter()
      #expect(try browser.token() != token)
      let again = try await browser.ask("POST", "/session", body: #"{"token":"\#(token)"}"#)
      #expect(again.status == 401 && !again.text.contains("secret"))
      for wrong in ["", "0", String(repeating: "0", count: 64), String(repeating: "ä", count: 9000)] {
        #expect(try await browser.ask("POST", "/session", body: #"{"token":"\#(wrong)"}"#).status == 401)
      }
      // The address alone leads nowhere, and is in no process's arguments.
      #expect(!browser.page.address.absoluteString.contains(try browser.token()))
      await browser.page.stop()
      #expect(!FileManager.default.fileExists(atPath: link))
    }
  }

  @Test func aPlaceThatIsOpenToOthersIsNoPlaceForALink() async throws {
    try await withTestApps { world in
      let app = try await world.startManaged("com.example.app")
      var options = LauncherPage.Options()
      options.directory = world.directory.appending(path: "open")
      try FileManager.default.createDirectory(at: options.directory, withIntermediateDirectories: false)
      try FileManager.default.setAttributes([.posixPermissions: 0o755], ofItemAtPath: options.directory.path)
      await #expect { _ = try await LauncherPage(of: app.runtime, options: options) } throws: {
        ($0 as? LauncherPageError)?.code == .unsafeDirectory
      }
      options.directory = world.directory.appending(path: "not/there")
      await #expect { _ = try await LauncherPage(of: app.runtime, options: options) } throws: {
        ($0 as? LauncherPageError)?.code == .linkNotWritten
      }
    }
  }

  @Test func aLinkIsNotWrittenThroughAnotherOne() async throws {
    try await withTestApps { world in
      let place = world.directory.appending(path: "run-link")
      let victim = world.directory.appending(path: "victim")
      try Data("whole".utf8).write(to: victim)
      let link = try PageLink(in: place, for: "com.example.app")
      for name in [link.url.path, link.url.path + ".new"] {
        try FileManager.default.createSymbolicLink(atPath: name, withDestinationPath: victim.path)
      }
      try link.lead(to: "http://127.0.0.1:1/#token")
      #expect(try String(contentsOf: victim, encoding: .utf8) == "whole")
      #expect(try String(contentsOf: link.url, encoding: .utf8).contains("#token"))
    }
  }

  // MARK: Sessions

  @Test func withoutASessionNothingIsSaid() async throws {
    try await withPage { _, _, browser in
      let session = try await browser.enter()
      for path in ["/events", "/do", "/icons", "/leave"] {
        for header: String? in [
          nil, "", ".", "\(session.id).", ".\(session.secret)", "\(session.id).\(session.secret)0",
          "\(session.id).\(session.secret.uppercased())", "\(session.secret).\(session.id)",
        ] {
          let answer = try await browser.ask("POST", path, ["Launcher-Session": header], body: "{}")
          #expect(answer.status == 401 && !answer.text.contains("com.example"), "\(path) \(header ?? "none")")
        }
      }
      // Nothing that a cookie or an address could carry.
      let answer = try await browser.ask(
        "POST", "/do?\(session.header)", ["Cookie": "Launcher-Session=\(session.header)"], body: "{}")
      #expect(answer.status == 404 && answer.headers["set-cookie"] == nil)
      #expect(try await browser.act(session, #"{"kind":"active"}"#) == .init())
    }
  }

  @Test func theServerShowsThatItKnowsASession() async throws {
    try await withPage { _, _, browser in
      struct Proof: Decodable { var proof: String }
      let session = try await browser.enter()
      let answer = try await browser.ask("POST", "/proof", body: #"{"id":"\#(session.id)","nonce":"n"}"#)
      let proof: Proof = try answer.json()
      let key = SHA256.hash(Array(session.secret.utf8))
      let expected = SHA256.authenticate(
        Array("opendynamics launcher\n\(browser.origin)\nn".utf8), key: key)
      #expect(proof.proof == expected.map { String(format: "%02x", $0) }.joined())
      #expect(!answer.text.contains(session.secret))
      let other = try await browser.ask("POST", "/proof", body: #"{"id":"0123456789abcdef","nonce":"n"}"#)
      #expect(other.status == 401)
      let long = String(repeating: "n", count: 129)
      #expect(
        try await browser.ask("POST", "/proof", body: #"{"id":"\#(session.id)","nonce":"\#(long)"}"#).status
          == 401)
    }
  }

  @Test func whoLogsOutIsOut() async throws {
    try await withPage { _, _, browser in
      let (session, other) = (try await browser.enter(), try await browser.enter())
      let tab = Tab(try await browser.events(session))
      #expect(await tab.read { $0["launcher"] != nil })
      #expect(
        try await browser.ask("POST", "/leave", ["Launcher-Session": session.header], body: "{}").status
          == 200)
      #expect(await tab.ends())
      #expect(
        try await browser.ask("POST", "/do", ["Launcher-Session": session.header], body: "{}").status == 401)
      #expect(try await browser.act(other, #"{"kind":"active"}"#) == .init())
    }
  }

  @Test func whoDoesNothingIsLoggedOut() async throws {
    let clock = ManualClock()
    try await withPage {
      $0.clock = clock
    } _: { _, _, browser in
      let (idle, busy) = (try await browser.enter(), try await browser.enter())
      let tab = Tab(try await browser.events(idle))
      #expect(await tab.read { $0["launcher"] != nil })
      clock.advance(by: .seconds(1700))
      #expect(try await browser.act(busy, #"{"kind":"active"}"#) == .init())
      clock.advance(by: .seconds(200))
      // Also one that reads all the time.
      #expect(await tab.ends())
      #expect(
        try await browser.ask("POST", "/events", ["Launcher-Session": idle.header], body: "{}").status == 401)
      #expect(try await browser.act(busy, #"{"kind":"active"}"#) == .init())
    }
  }

  // MARK: Other sites

  @Test func otherHostsAndOriginsAreRefused() async throws {
    try await withPage { _, _, browser in
      let session = try await browser.enter()
      let parts = browser.host.split(separator: ":")
      let (address, port) = (parts[0], Int(parts[1])!)
      // Another one each time: nothing that a browser has kept of an earlier one is at it.
      #expect(address.hasPrefix("127.") && address != "127.0.0.1")
      for host in [
        "localhost:\(port)", "127.0.0.1:\(port)", "\(address)", "\(address):80", "evil.example:\(port)",
        "\(address).:\(port)", nil,
      ] {
        #expect(try await browser.ask("GET", "/", ["Host": host]).status == 421)
        let answer = try await browser.ask(
          "POST", "/do", ["Host": host, "Launcher-Session": session.header], body: #"{"kind":"active"}"#)
        #expect(answer.status == 421)
      }
      let good = ["Launcher-Session": Optional(session.header)]
      for origin in [
        "null", "http://localhost:\(port)", "http://127.0.0.1:\(port)", "http://\(address):\(port + 1)",
        "https://\(address):\(port)",
        "http://\(address)", "http://evil.example", nil,
      ] {
        let answer = try await browser.ask(
          "POST", "/do", good.merging(["Origin": origin]) { $1 }, body: #"{"kind":"active"}"#)
        #expect(answer.status == 403)
        #expect(answer.headers["access-control-allow-origin"] == nil)
      }
      // What a form, or a script without asking first, can send.
      for type in ["text/plain", "application/x-www-form-urlencoded", "application/json; charset=utf-8", nil]
      {
        let answer = try await browser.ask(
          "POST", "/do", good.merging(["Content-Type": type]) { $1 }, body: #"{"kind":"active"}"#)
        #expect(answer.status == 415)
      }
      let asked = try await browser.ask(
        "OPTIONS", "/do", ["Origin": "http://evil.example", "Access-Control-Request-Method": "POST"])
      #expect(asked.status == 405 && asked.headers["access-control-allow-origin"] == nil)
      for path in ["/launcher.js", "/launcher.css"] {
        #expect(try await browser.ask("GET", path, ["Sec-Fetch-Site": "cross-site"]).status == 403)
        #expect(try await browser.ask("GET", path, ["Sec-Fetch-Site": "same-origin"]).status == 200)
      }
      // The link leads here from a file; a frame or a picture does not.
      for (destination, status) in [("document", 200), ("iframe", 403), ("image", 403)] {
        let headers: [String: String?] = ["Sec-Fetch-Site": "cross-site", "Sec-Fetch-Dest": destination]
        #expect(try await browser.ask("GET", "/", headers).status == status)
      }
    }
  }

  @Test func everythingHasThePolicy() async throws {
    try await withPage { _, _, browser in
      var answers = [
        try await browser.ask("POST", "/do", body: "{}"), try await browser.ask("GET", "/nothing"),
      ]
      for path in ["/", "/launcher.js", "/launcher.css"] {
        answers.append(try await browser.ask("GET", path))
      }
      for answer in answers {
        let policy = try #require(answer.headers["content-security-policy"])
        #expect(policy.hasPrefix("default-src 'none';") && policy.contains("frame-ancestors 'none'"))
        #expect(policy.contains("require-trusted-types-for 'script'; trusted-types 'none'"))
        #expect(!policy.contains("unsafe") && !policy.contains("*") && !policy.contains("http"))
        #expect(answer.headers["x-content-type-options"] == "nosniff")
        #expect(answer.headers["cache-control"] == "no-store")
        #expect(answer.headers["referrer-policy"] == "no-referrer")
        #expect(answer.headers["cross-origin-resource-policy"] == "same-origin")
      }
      // What names may do is decided by this: no part of the page makes elements of text, or asks anybody else.
      let (script, style, page) = (answers[3].text, answers[4].text, answers[2].text)
      for text in [
        "innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "Function(", "://",
      ] {
        // The name of SVG is no address.
        let plain = script.replacing("http://www.w3.org/2000/svg", with: "")
        #expect(!plain.contains(text), "\(text)")
      }
      #expect(!page.contains("://") && !style.contains("://") && !style.contains("@import"))
      #expect(!page.contains("style=") && !page.contains("onclick="))
      #expect(script.utf8.count + style.utf8.count <= 60_000)
    }
  }

  // MARK: Whose the other end is

  @Test func theKernelSaysWhoseAConnectionIs() {
    let list = """
        sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
         0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 1 1
         1: 0100007F:9C41 0100007F:1F90 01 00000000:00000000 00:00000000 00000000  1000        0 2 1
         2: 0100007F:1F90 0100007F:9C41 01 00000000:00000000 00:00000000 00000000  1001        0 3 1
         3: 0200007F:9C42 0100007F:1F90 01 00000000:00000000 00:00000000 00000000  1002        0 4 1
         4: 0100007F:9C43 0100007F:1F90 06 00000000:00000000 00:00000000 00000000     0        0 0 1
      """
    func user(_ last: UInt8, _ port: UInt16) -> UInt32? {
      ConnectionOwner.user(
        of: .init(address: [127, 0, 0, last], port: port),
        connectedTo: .init(address: [127, 0, 0, 1], port: 0x1F90), in: Array(list.utf8))
    }
    #expect(user(1, 0x9C41) == 1000)
    #expect(user(2, 0x9C42) == 1002)
    // One of another address, one that nobody has any more, and none.
    #expect(user(1, 0x9C42) == nil && user(1, 0x9C43) == nil && user(1, 0x9C44) == nil)
    #expect(
      ConnectionOwner.user(
        of: .init(address: [127, 0, 0, 1], port: 1), connectedTo: .init(address: [], port: 1), in: []) == nil)
  }

  @Test(.enabled(if: geteuid() == 0, "another user can be had by root only"))
  func anotherUserGetsNothing() async throws {
    try await withPage { _, _, browser in
      let ask =
        #"exec 3<>/dev/tcp/${0/://} && printf 'GET / HTTP/1.1\r\nHost: %s\r\n\r\n' $0 >&3 && timeout 5 head -c 12 <&3"#
      func asked(by user: Int) async throws -> String {
        let host = browser.host
        return try await BlockingCall.run {
          let process = Process()
          let output = Pipe()
          process.executableURL = URL(filePath: "/usr/bin/setpriv")
          process.arguments = ["--reuid", "\(user)", "--clear-groups", "bash", "-c", ask, host]
          process.standardOutput = output
          process.standardError = FileHandle.nullDevice
          try process.run()
          let text = String(decoding: output.fileHandleForReading.readDataToEndOfFile(), as: UTF8.self)
          process.waitUntilExit()
          return text
        }
      }
      let (other, own) = (try await asked(by: 65534), try await asked(by: 0))
      #expect(other == "" && own == "HTTP/1.1 200")
    }
  }

  // MARK: Seals

  @Test func aSealLeavesNoNameWithinASecond() async throws {
    try await withPage { world, app, browser in
      let other = try await world.start("com.example.neighbour")
      try await send("secret plan.txt", to: app, from: other)
      let session = try await browser.enter()
      let tab = Tab(try await browser.events(session))
      #expect(
        await tab.read {
          $0["apps"]?.contains("neighbour") == true && $0["inbox"]?.contains("secret plan.txt") == true
        })
      let told = tab.lines.count
      let clock = ContinuousClock()
      let begin = clock.now
      app.runtime.block(LocalBlock(id: "lost", notice: Notice(title: "Locked", text: "Call the help desk.")))
      #expect(
        await tab.read { parts in
          ["launcher", "apps", "messages", "inbox"].allSatisfy { parts[$0] == "null" }
            && parts["app"]?.contains("help desk") == true
        })
      #expect(clock.now - begin < .seconds(1))
      for name in ["neighbour", "secret plan", "com.example"] {
        #expect(!tab.lines[told...].joined().contains(name), "\(name)")
        #expect(!tab.parts.values.joined().contains(name), "\(name)")
      }
      for action in ["tap", "settings", "certificates", "active"] {
        #expect(try await browser.act(session, #"{"kind":"\#(action)"}"#).ignored == "notAuthorized")
      }
      // A new tab sees as little.
      let late = Tab(try await browser.events(try await browser.enter()))
      #expect(await late.read { $0["app"] != nil })
      #expect(!late.lines.joined().contains("example"))
    }
  }

  @Test func aSealInTheMiddleOfALookShowsNothing() throws {
    let board = Board()
    let epoch = board.begin()
    board.seal()
    board.show([(.inbox, ["a name"])], of: epoch)
    var have: [String: UInt64] = [:]
    #expect(!String(decoding: board.lines(beyond: &have), as: UTF8.self).contains("a name"))
    let next = board.begin()
    board.show([(.inbox, ["another"])], of: next)
    #expect(String(decoding: board.lines(beyond: &have), as: UTF8.self).contains("another"))
    // Who has everything gets nothing, and who comes back what is new.
    #expect(board.lines(beyond: &have).isEmpty)
    board.show([(.messages, ["moves"])], of: next)
    #expect(String(decoding: board.lines(beyond: &have), as: UTF8.self).contains("moves"))
  }
}
