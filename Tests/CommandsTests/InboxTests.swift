import ContainerStore
import Foundation
import ServiceWire
import SodiumPrimitives
import Testing

struct InboxCommandTests {
  private struct Message: Decodable {
    struct Reply: Decodable {
      var requestID: String
      var params: String?
      var error: String?
    }

    var directory: String?
    var sender: String
    var date: String
    var fileCount: Int
    var size: UInt64
    var reply: Reply?
  }

  /// A container with two messages of one sender and one of another.
  private func inbox() throws -> (TemporaryFolder, String) {
    let folder = try TemporaryFolder()
    let (a, b) = (try folder.makeContainer("a"), try folder.makeContainer("b"))
    try folder.run("put", a, try folder.makeFile("f", [UInt8](repeating: 1, count: 3000)), "/f")
    try folder.run("put", a, try folder.makeFile("g", [1]), "/g")
    for (sender, paths) in [
      ("com.example.a", ["/f", "/g"]), ("com.example.a", ["/g"]), ("com.example.b", ["/f"]),
    ] {
      let arguments = ["send", a, b, "--from", sender, "--to-key-file", folder.path("key"), "--quiet"]
      let outcome = try DynamicsProcess((arguments + folder.key + paths).map { Array($0.utf8) }, in: folder)
        .finish()
      #expect(outcome.status == 0, "\(outcome.errors)")
    }
    return (folder, b)
  }

  private func messages(_ folder: TemporaryFolder, _ arguments: [String]) throws -> [Message] {
    let outcome = try DynamicsProcess(
      (["inbox", "--json"] + arguments + folder.key).map { Array($0.utf8) }, in: folder
    ).finish()
    #expect(outcome.status == 0, "\(outcome.errors)")
    return try JSONDecoder().decode([Message].self, from: Data(outcome.output))
  }

  @Test func listsMessagesWithFilters() throws {
    let (folder, b) = try inbox()
    let all = try messages(folder, [b])
    #expect(all.map(\.sender) == ["com.example.a", "com.example.a", "com.example.b"])
    #expect(all.map(\.fileCount) == [2, 1, 1])
    #expect(all.map(\.size) == [3001, 1, 3000])
    #expect(all[0].date < all[1].date)
    #expect(
      try messages(folder, [b, "list", "--from", "com.example.b"]).map(\.directory) == [all[2].directory])
    #expect(try messages(folder, [b, "--size", "+3000c"]).map(\.directory) == [all[0].directory])
    #expect(try messages(folder, [b, "--size", "-2c"]).map(\.directory) == [all[1].directory])
    #expect(try messages(folder, [b, "--days", "0", "--minutes", "-1000"]).count == 3)
    #expect(try messages(folder, [b, "--days", "+0"]).isEmpty)
    let lines = try folder.run("inbox", b, "--from", "com.example.a").text.split(separator: "\n")
    #expect(
      lines[0].wholeMatch(
        of: /\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ  2  3001  \/Inbox\/com\.example\.a\/\d{8}T\d{6}\.\d{3}Z/) != nil)
    #expect(lines[1].contains("  1     1  "))
  }

  @Test func removesWhatPassesAndWantsAFilter() throws {
    let (folder, b) = try inbox()
    _ = try folder.run("inbox", b, "remove", expecting: 64)
    _ = try folder.run("inbox", b, "remove", "--all", "--size", "1", expecting: 64)
    _ = try folder.run("inbox", b, "away", expecting: 64)
    let all = try messages(folder, [b])
    let removed = try messages(folder, [b, "remove", "--from", "com.example.a", "--size", "+2000c"])
    #expect(removed.map(\.directory) == [all[0].directory])
    #expect(try messages(folder, [b]).map(\.directory) == [all[1].directory, all[2].directory])
    #expect(try folder.run("inbox", b, "remove", "--all").text.split(separator: "\n").count == 2)
    #expect(try messages(folder, [b]).isEmpty)
    try folder.run("container", "verify", b)
  }

  /// One that the app has not taken, beside messages that it has.
  @Test func listsAndRemovesReplies() throws {
    let (folder, b) = try inbox()
    let id = Identifier.random()
    let open = try OpenContainer(b, keyFile: folder.path("key"))
    for sender in ["com.example.a", "com.example.b"] {
      let message = WireOffer.with { $0.reply.id = id.data }
      let arrival = try open.container.enqueueForReply(
        Identifier.random(), from: sender, [UInt8](message.serializedData()), isHandled: false)
      try open.container.keepUnclaimed(arrival)
    }
    try open.container.close()
    let all = try messages(folder, [b])
    #expect(all.count == 5 && all.compactMap(\.reply?.requestID) == [id.description, id.description])
    #expect(all.suffix(2).allSatisfy { $0.directory == nil && $0.fileCount == 0 })
    let line = try folder.run("inbox", b).text.split(separator: "\n").last
    #expect(line?.hasSuffix("  0     0  reply of com.example.b to \(id)") == true, "\(line ?? "")")
    let removed = try messages(folder, [b, "remove", "--from", "com.example.a"])
    #expect(removed.count == 3)
    #expect(try messages(folder, [b]).map(\.sender) == ["com.example.b", "com.example.b"])
    try folder.run("inbox", b, "remove", "--all")
    #expect(try messages(folder, [b]).isEmpty)
    try folder.run("container", "verify", b)
  }
}
