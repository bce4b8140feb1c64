import Foundation
import LauncherPage
import SecureFiles

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

/// A connection to a page, by bytes: what no browser would send, too. Its calls block.
final class RawConnection {
  private let descriptor: Int32
  private var rest: [UInt8] = []

  /// Nothing came for too long, which is no end.
  private(set) var hasTimedOut = false

  /// Of `http://address:port`.
  init(_ origin: String) throws {
    let parts = origin.split(whereSeparator: { ":/".contains($0) })
    guard parts.count == 3, let port = UInt16(parts[2]) else { throw POSIXError(.EINVAL) }
    descriptor = socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0)
    var address = sockaddr_in()
    address.sin_family = sa_family_t(AF_INET)
    address.sin_port = port.bigEndian
    guard inet_pton(AF_INET, String(parts[1]), &address.sin_addr) == 1 else { throw POSIXError(.EINVAL) }
    let status = withUnsafePointer(to: &address) {
      $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
        connect(descriptor, $0, socklen_t(MemoryLayout<sockaddr_in>.size))
      }
    }
    guard status == 0 else { throw POSIXError(.init(rawValue: errno) ?? .EIO) }
    var time = timeval(tv_sec: 20, tv_usec: 0)
    setsockopt(descriptor, SOL_SOCKET, SO_RCVTIMEO, &time, socklen_t(MemoryLayout<timeval>.size))
  }

  deinit { close(descriptor) }

  /// False when the other end is closed.
  @discardableResult
  func send(_ bytes: [UInt8]) -> Bool {
    var done = 0
    while done < bytes.count {
      let count = bytes.withUnsafeBytes {
        Glibc.send(descriptor, $0.baseAddress! + done, bytes.count - done, Int32(MSG_NOSIGNAL))
      }
      if count <= 0 { return false }
      done += count
    }
    return true
  }

  /// Nil at the end, and after 20 s.
  private func more() -> Bool {
    var buffer = [UInt8](repeating: 0, count: 65_536)
    let count = recv(descriptor, &buffer, buffer.count, 0)
    if count < 0 { hasTimedOut = errno == EAGAIN }
    guard count > 0 else { return false }
    rest += buffer[..<count]
    return true
  }

  /// Up to and without a line's end; nil when nothing comes any more.
  func line() -> String? {
    while true {
      if let end = rest.firstIndex(of: 10) {
        var line = rest[..<end]
        if line.last == 13 { line.removeLast() }
        defer { rest.removeFirst(end + 1) }
        return String(decoding: line, as: UTF8.self)
      }
      guard more() else { return nil }
    }
  }

  func bytes(_ count: Int) -> [UInt8]? {
    while rest.count < count { guard more() else { return nil } }
    defer { rest.removeFirst(count) }
    return Array(rest[..<count])
  }

  /// Whether the other end has closed it without another word.
  func isOver() -> Bool { rest.isEmpty && !more() && !hasTimedOut }
}

/// An answer of a page.
struct PageAnswer {
  var status: Int
  /// In small letters.
  var headers: [String: String]
  var body: [UInt8]

  var text: String { String(decoding: body, as: UTF8.self) }
  func json<Value: Decodable>(_ type: Value.Type = Value.self) throws -> Value {
    try JSONDecoder().decode(type, from: Data(body))
  }
}

/// What a tab of a browser does, and what others try.
struct PageBrowser: Sendable {
  struct Session: Codable, Sendable {
    var id: String
    var secret: String
    var header: String { "\(id).\(secret)" }
  }

  struct Outcome: Decodable, Equatable {
    var ignored: String?
    var error: String?
    var saved: String?
  }

  let page: LauncherPage
  var origin: String { String(page.address.absoluteString.dropLast()) }
  var host: String { String(origin.dropFirst("http://".count)) }

  /// The token that stands in the link.
  func token() throws -> String {
    let text = try String(contentsOf: page.link, encoding: .utf8)
    guard let begin = text.range(of: "url=\(origin)/#"),
      let end = text[begin.upperBound...].firstIndex(of: "\"")
    else { throw POSIXError(.ENOENT) }
    return String(text[begin.upperBound..<end])
  }

  /// Headers of nil are left out.
  func ask(
    _ method: String, _ path: String, _ headers: [String: String?] = [:], body: String? = nil
  ) async throws -> PageAnswer {
    let (origin, bytes) = (origin, request(method, path, headers, body))
    return try await BlockingCall.run {
      let connection = try RawConnection(origin)
      connection.send(bytes)
      return try Self.answer(connection)
    }
  }

  func request(_ method: String, _ path: String, _ headers: [String: String?], _ body: String?) -> [UInt8] {
    var all: [String: String?] = ["Host": host]
    if let body {
      all["Content-Length"] = "\(body.utf8.count)"
      all["Content-Type"] = "application/json"
      all["Origin"] = origin
    }
    all.merge(headers) { $1 }
    let lines = all.compactMap { name, value in value.map { "\(name): \($0)\r\n" } }
    return Array("\(method) \(path) HTTP/1.1\r\n\(lines.joined())\r\n\(body ?? "")".utf8)
  }

  static func answer(_ connection: RawConnection) throws -> PageAnswer {
    let first = connection.line()?.split(separator: " ") ?? []
    guard first.count > 1, let status = Int(first[1]) else { throw POSIXError(.ECONNRESET) }
    var headers: [String: String] = [:]
    while let line = connection.line(), !line.isEmpty {
      let parts = line.split(separator: ":", maxSplits: 1)
      headers[parts[0].lowercased()] = parts.count > 1 ? parts[1].trimmingCharacters(in: .whitespaces) : ""
    }
    let body = headers["content-length"].flatMap { Int($0) }.flatMap { connection.bytes($0) } ?? []
    return PageAnswer(status: status, headers: headers, body: body)
  }

  /// Goes in by the link.
  func enter() async throws -> Session {
    try await ask("POST", "/session", body: #"{"token":"\#(token())"}"#).json()
  }

  /// What a person does.
  func act(_ session: Session, _ action: String) async throws -> Outcome {
    try await ask("POST", "/do", ["Launcher-Session": session.header], body: action).json()
  }

  /// The events of a tab. The connection is the caller's.
  func events(_ session: Session, have: String = "{}") async throws -> RawConnection {
    let (origin, bytes) = (
      origin, request("POST", "/events", ["Launcher-Session": session.header], #"{"have":\#(have)}"#)
    )
    nonisolated(unsafe) let connection = try await BlockingCall.run {
      let connection = try RawConnection(origin)
      connection.send(bytes)
      guard try Self.answer(connection).status == 200 else { throw POSIXError(.EACCES) }
      return Unchecked(connection)
    }.value
    return connection
  }

  struct Unchecked<Value>: @unchecked Sendable {
    // Invariant: it goes from one thread to the next, and is used by one at a time.
    let value: Value
    init(_ value: Value) { self.value = value }
  }
}

/// What a tab has been told.
final class Tab {
  private let connection: RawConnection
  private(set) var parts: [String: String] = [:]
  /// Every line that came.
  private(set) var lines: [String] = []

  init(_ connection: RawConnection) { self.connection = connection }

  /// Reads until a part is as meant. False when the stream ends before.
  func read(until isMeant: @escaping ([String: String]) -> Bool) async -> Bool {
    let this = PageBrowser.Unchecked((tab: self, isMeant: isMeant))
    return
      (try? await BlockingCall.run {
        while !this.value.isMeant(this.value.tab.parts) { guard this.value.tab.next() else { return false } }
        return true
      }) ?? false
  }

  /// Whether the stream has an end.
  func ends() async -> Bool {
    let this = PageBrowser.Unchecked(self)
    return
      (try? await BlockingCall.run {
        while this.value.next() {}
        return !this.value.connection.hasTimedOut
      }) ?? false
  }

  private func next() -> Bool {
    // In pieces: the size, the line, and an empty line.
    guard let size = connection.line().flatMap({ Int($0, radix: 16) }), size > 0,
      let bytes = connection.bytes(size), connection.line() == ""
    else { return false }
    for line in bytes.split(separator: 10) {
      let text = String(decoding: line, as: UTF8.self)
      lines.append(text)
      guard let name = text.split(separator: "\"").dropFirst(3).first,
        let value = text.range(of: #""value":"#)
      else { return false }
      parts[String(name)] = String(text[value.upperBound...].dropLast())
    }
    return true
  }
}
