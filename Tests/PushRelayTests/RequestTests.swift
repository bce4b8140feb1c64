import Foundation
import PushWire
import Testing

@testable import PushRelay

struct CallbackURLTests {
  @Test func parts() throws {
    let url = try #require(CallbackURL("https://Server.example/push?a=b%20c"))
    #expect(url.isSecure && url.host == "server.example" && url.port == 443)
    #expect(url.target == "/push?a=b%20c" && url.text == "https://Server.example/push?a=b%20c")
    let plain = try #require(CallbackURL("HTTP://[2001:db8::1]:8080"))
    #expect(!plain.isSecure && plain.host == "2001:db8::1" && plain.port == 8080 && plain.target == "/")
    #expect(plain.requestText == "http://[2001:db8::1]:8080/" && plain.origin == "http://[2001:db8::1]:8080")
    let dotted = try #require(CallbackURL("https://SERVER.example.?a"))
    #expect(dotted.host == "server.example" && dotted.requestText == "https://server.example:443/?a")
    #expect(try #require(CallbackURL("http://[2001:DB8:0::1]/")).host == "2001:db8::1")
    #expect(CallbackURL("http://h/" + String(repeating: "x", count: 2048 - 9)) != nil)
  }

  @Test(arguments: [
    "", "server.example", "//server.example/", "ftp://server.example/", "file:///etc/passwd", "http:///path",
    "http://user@server.example/", "http://user:secret@server.example/", "http://server.example/#part",
    "http://server.example:0/", "http://server.example:65536/", "http://server.example:x/",
    "http://server.example/a b", "http://server.example/\r\nHost: other", "http://sérver.example/",
    "http://[::1/", "http://[server.example]/", "http://[fe80::1%25eth0]/", "http://a%2eb/",
    "http://server.example\\@other/", "http://a..b/", "http://a../", "http://./", "http://a,b/",
    "http://a;b/", "http://[127.0.0.1]/", "http://[v1.x]/", "http://a+b/", "http://a%00b/",
    "http://h/" + String(repeating: "x", count: 2048 - 8),
  ])
  func refused(text: String) {
    #expect(CallbackURL(text) == nil)
  }
}

struct GNPRequestTests {
  static let token = PushToken(relay: .local)

  static func request(
    _ method: String = "GET", _ target: String = "/GNP1.0?method=checkToken", token: String? = token.text,
    _ headers: [(String, String)] = []
  ) -> BackEndRequest {
    BackEndRequest(
      method: method, target: target, headers: headers + (token.map { [("X-Good-GNP-Token", $0)] } ?? []))
  }

  static func notify(_ headers: [(String, String)] = [("Content-Length", "2")]) -> BackEndRequest {
    request("POST", "/GNP1.0?method=notify", headers)
  }

  @Test func checkToken() throws {
    let request = try GNPRequest(Self.request())
    #expect(request.operation == .checkToken && request.token == Self.token)
    #expect(try request.callbacks() == GNPRequest.Callbacks())
    // Header names have no case.
    let lower = BackEndRequest(
      method: "GET", target: "/GNP1.0?method=checkToken", headers: [("x-good-gnp-token", Self.token.text)])
    #expect(try GNPRequest(lower).token == Self.token)
  }

  @Test func callbacks() throws {
    let target =
      "/GNP1.0?method=checkToken&pingURL=https%3A%2F%2Fserver.example%2Fping%3Fa%3D1%26b%3D2"
      + "&disconnectURL=http%3A%2F%2Fserver.example%2Fgone&minPingInterval=30&other=1"
    let callbacks = try GNPRequest(Self.request("GET", target)).callbacks()
    #expect(callbacks.ping?.text == "https://server.example/ping?a=1&b=2")
    #expect(callbacks.disconnect?.text == "http://server.example/gone")
    #expect(callbacks.minimumPingMinutes == 30)
    for blank in ["&pingURL=&disconnectURL&minPingInterval=", "&pingURL=%20"] {
      #expect(
        try GNPRequest(Self.request("GET", "/GNP1.0?method=checkToken" + blank)).callbacks()
          == GNPRequest.Callbacks())
    }
  }

  @Test(arguments: [
    "&pingURL=server", "&pingURL=ftp%3A%2F%2Fa%2F", "&disconnectURL=http%3A%2F%2Fu%40a%2F",
    "&minPingInterval=5",
    "&pingURL=http%3A%2F%2Fa%2F&minPingInterval=-1", "&pingURL=http%3A%2F%2Fa%2F&minPingInterval=x",
    "&pingURL=http%3A%2F%2Fa%2F&minPingInterval=10081",
    "&pingURL=http%3A%2F%2Fa%2F&minPingInterval=99999999999999999999",
  ])
  func callbacksThatAreRefused(parameters: String) throws {
    let request = try GNPRequest(Self.request("GET", "/GNP1.0?method=checkToken" + parameters))
    #expect(throws: GNPCode.urlFormat) { try request.callbacks() }
  }

  @Test(arguments: [
    ("GET", "/GNP1.0"), ("GET", "/GNP1.0?method=other"), ("GET", "/GNP1.0?"),
    ("GET", "/GNP2.0?method=checkToken"),
    ("POST", "/GNP1.0?method=checkToken"), ("GET", "/GNP1.0?method=notify"), ("PUT", "/GNP1.0?method=notify"),
    ("GET", "/GNP1.0?method=checkToken&method=checkToken"), ("GET", "/GNP1.0?method=checkToken&pingURL=%zz"),
    ("GET", "/gnp1.0?method=checkToken"),
  ])
  func unsupported(method: String, target: String) {
    #expect(throws: GNPCode.unsupported) {
      try GNPRequest(Self.request(method, target, [("Content-Length", "0")]))
    }
  }

  @Test(arguments: [nil, "-1", "x", "1048577", "99999999999999999999"])
  func notifyNeedsALength(length: String?) {
    #expect(throws: GNPCode.unsupported) {
      try GNPRequest(Self.notify(length.map { [("Content-Length", $0)] } ?? []))
    }
  }

  @Test func lengths() throws {
    #expect(try GNPRequest(Self.notify([("Content-Length", "0")])).byteCount == 0)
    #expect(try GNPRequest(Self.notify([("Content-Length", "1048576")])).byteCount == 1_048_576)
    #expect(throws: GNPCode.unsupported) {
      try GNPRequest(Self.notify([("Content-Length", "1"), ("Content-Length", "2")]))
    }
  }

  @Test func tokens() {
    #expect(throws: GNPCode.tokenFormat) { try GNPRequest(Self.request(token: nil)) }
    #expect(throws: GNPCode.tokenFormat) { try GNPRequest(Self.request(token: "a b")) }
    #expect(throws: GNPCode.invalidToken) { try GNPRequest(Self.request(token: "")) }
    #expect(throws: GNPCode.tokenFormat) {
      try GNPRequest(
        Self.request("GET", "/GNP1.0?method=checkToken", [("X-Good-GNP-Token", Self.token.text)]))
    }
  }

  @Test(arguments: [
    nil, "text/plain", "text/plain; charset=utf-8", "TEXT/PLAIN;charset=UTF-8",
    "text/plain; charset=\"utf-8\"",
    "text/plain; format=flowed",
  ])
  func textsThatAreTaken(type: String?) throws {
    let headers = [("Content-Length", "2")] + (type.map { [("Content-Type", $0)] } ?? [])
    let request = try GNPRequest(Self.notify(headers))
    #expect(try request.text(of: Data("hé".utf8)).body == Data("hé".utf8))
    #expect(try request.text(of: Data()).body.isEmpty)
    #expect(throws: GNPCode.unsupportedEncoding) { try request.text(of: Data([0xff, 0xfe])) }
  }

  @Test(arguments: [
    "", "text/html", "application/json", "text/plain; charset=utf-16", "text/plain; charset=iso-8859-1",
  ])
  func otherTypes(type: String) throws {
    let request = try GNPRequest(Self.notify([("Content-Length", "2"), ("Content-Type", type)]))
    #expect(throws: GNPCode.unsupportedEncoding) { try request.text(of: Data()) }
  }

  @Test func codesHaveTheirDocumentedNumbers() {
    for code in GNPCode.allCases { #expect(code.header.hasPrefix("\(code.rawValue) ")) }
  }
}

struct PushRequestTests {
  static let token = PushToken(relay: .local)

  static func request(
    _ headers: [(String, String)] = [("TTL", "60"), ("Content-Length", "2")], method: String = "POST",
    target: String = "/push/" + token.secret
  ) -> BackEndRequest {
    BackEndRequest(method: method, target: target, headers: headers)
  }

  @Test func aRequest() throws {
    let request = try PushRequest(
      Self.request([
        ("ttl", " 3600 "), ("Urgency", "very-low"), ("Topic", "inbox_1-A"), ("Content-Encoding", "aes128gcm"),
        ("content-length", "86"),
      ]))
    #expect(
      request.secret == Self.token.secret && request.timeToLiveSeconds == 3600 && request.byteCount == 86)
    let message = try request.message(body: Data([0xff]))
    #expect(
      message
        == PushMessage(
          body: Data([0xff]), encoding: .aes128gcm, urgency: .veryLow, topic: "inbox_1-A", accepted: 0))
    #expect(try PushRequest(Self.request()).message(body: Data("hi".utf8)).urgency == .normal)
  }

  @Test func timesToLiveAreCut() throws {
    for text in ["604800", "604801", "99999999999999999999999999"] {
      #expect(
        try PushRequest(Self.request([("TTL", text), ("Content-Length", "0")])).timeToLiveSeconds == 604_800
      )
    }
  }

  @Test(arguments: [
    (404, "POST", "/push/", []), (404, "POST", "/push/x", []), (404, "POST", "/other", []),
    (404, "POST", "/push/" + token.secret + "/x", []), (404, "POST", "/push/" + token.secret + "?a=b", []),
    (405, "GET", "/push/" + token.secret, []), (405, "PUT", "/push/x", []),
    (400, "POST", "/push/" + token.secret, [("Content-Length", "0")]),
    (400, "POST", "/push/" + token.secret, [("TTL", "")]),
    (400, "POST", "/push/" + token.secret, [("TTL", "-1")]),
    (400, "POST", "/push/" + token.secret, [("TTL", "1"), ("TTL", "1")]),
    (400, "POST", "/push/" + token.secret, [("TTL", "1"), ("Urgency", "urgent")]),
    (400, "POST", "/push/" + token.secret, [("TTL", "1"), ("Topic", "")]),
    (400, "POST", "/push/" + token.secret, [("TTL", "1"), ("Topic", "a b")]),
    (400, "POST", "/push/" + token.secret, [("TTL", "1"), ("Topic", String(repeating: "x", count: 33))]),
    (415, "POST", "/push/" + token.secret, [("TTL", "1"), ("Content-Encoding", "gzip")]),
    (411, "POST", "/push/" + token.secret, [("TTL", "1")]),
    (413, "POST", "/push/" + token.secret, [("TTL", "1"), ("Content-Length", "1048577")]),
  ])
  func refusals(status: Int, method: String, target: String, headers: [(String, String)]) {
    let error = #expect(throws: PushRequest.Refusal.self) {
      try PushRequest(Self.request(headers, method: method, target: target))
    }
    #expect(error?.status == status)
    #expect(error?.text.isEmpty == false)
  }

  @Test func textsAreUTF8() throws {
    let request = try PushRequest(Self.request())
    let error = #expect(throws: PushRequest.Refusal.self) { try request.message(body: Data([0xc3])) }
    #expect(error?.status == 400)
  }
}
