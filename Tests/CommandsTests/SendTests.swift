import Foundation
import SodiumPrimitives
import Testing

struct SendTests {
  private struct Delivery: Decodable {
    struct File: Decodable {
      var originalPath: String
      var path: String
      var size: UInt64
    }
    var requestID: String?
    var directory: String
    var files: [File]
    var byteCount: UInt64
    var seconds: Double
    var bytesPerSecond: Double
    var deliveredBefore: Bool
  }

  private func send(
    _ folder: TemporaryFolder, _ a: String, _ b: String, _ more: String...
  ) throws -> Delivery {
    let arguments =
      ["send", a, b, "--from", "com.example.a", "--to-key-file", folder.path("key"), "--json"] + folder.key
      + more
    let outcome = try DynamicsProcess(arguments.map { Array($0.utf8) }, in: folder).finish()
    #expect(outcome.status == 0, "\(outcome.errors)")
    return try JSONDecoder().decode(Delivery.self, from: Data(outcome.output))
  }

  @Test func deliversFilesAndFoldersAndSaysWhere() throws {
    let folder = try TemporaryFolder()
    let (a, b) = (try folder.makeContainer("a"), try folder.makeContainer("b"))
    let bytes = Random.bytes(1 << 20 + 1)
    try folder.run("put", a, try folder.makeFile("f", bytes), "/docs/f")
    try folder.run("put", a, try folder.makeFile("g", []), "/g")
    let delivery = try send(folder, a, b, "/docs", "/g", "--no-barrier", "--check-interval", "1")
    #expect(!delivery.deliveredBefore && delivery.requestID == nil)
    #expect(delivery.directory.hasPrefix("/Inbox/com.example.a/"))
    #expect(delivery.files.map(\.originalPath) == ["/docs/f", "/g"])
    #expect(delivery.files.map(\.path) == ["/docs/f", "/g"].map { delivery.directory + $0 })
    #expect(delivery.files.map(\.size) == [UInt64(bytes.count), 0])
    #expect(delivery.byteCount == UInt64(bytes.count))
    #expect(delivery.seconds > 0 && delivery.bytesPerSecond > 0)
    #expect(try folder.run("cat", b, delivery.files[0].path).output == bytes)
    try folder.run("container", "verify", b)
  }

  @Test func deliversTheSameRequestOnce() throws {
    let folder = try TemporaryFolder()
    let (a, b) = (try folder.makeContainer("a"), try folder.makeContainer("b"))
    try folder.run("put", a, try folder.makeFile("f", [1]), "/f")
    let first = try send(folder, a, b, "/f", "--request-id", "r1")
    let second = try send(folder, a, b, "/f", "--request-id", "r1")
    #expect(first.requestID == "r1" && !first.deliveredBefore && first.files.count == 1)
    #expect(second.deliveredBefore && second.files.isEmpty && second.directory == first.directory)
    #expect(try folder.run("ls", b, "/Inbox/com.example.a").text.split(separator: "\n").count == 1)
  }

  @Test func printsASummary() throws {
    let folder = try TemporaryFolder()
    let (a, b) = (try folder.makeContainer("a"), try folder.makeContainer("b"))
    try folder.run("put", a, try folder.makeFile("f", [1]), "/f")
    let to = ["--to-key-file", folder.path("key")]
    let text = try folder.run("send", a, b, "/f", "--from", "x", "--request-id", "r", to[0], to[1]).text
    #expect(text.contains("/f -> /Inbox/x/"))
    #expect(text.contains("1 file, 1 B in "))
    #expect(try folder.run("send", a, b, "/f", "--from", "x", "--quiet", to[0], to[1]).text == "")
  }

  @Test func sendsWhileAnotherProcessWritesToTheSender() throws {
    let folder = try TemporaryFolder()
    let (a, b) = (try folder.makeContainer("a"), try folder.makeContainer("b"))
    try folder.run("put", a, try folder.makeFile("f", [1]), "/f")
    let writer = try OpenContainer(a, keyFile: folder.path("key"))
    #expect(try send(folder, a, b, "/f").files.count == 1)
    try writer.close()
  }
}
