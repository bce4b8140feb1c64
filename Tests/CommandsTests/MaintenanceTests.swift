import SodiumPrimitives
import Testing

/// `container compact`, `backup` and `repair`.
struct MaintenanceTests {
  @Test func spaceComesBackAndABackupHoldsTheSame() throws {
    let folder = try TemporaryFolder()
    let container = try folder.makeContainer()
    let tree = try folder.makeFolder("tree")
    var contents: [[UInt8]] = []
    for i in 0..<60 {
      contents.append(Random.bytes(30_000))
      _ = try folder.makeFile("tree/f\(i)", contents[i])
    }
    try folder.run("put", container, tree, "/tree")
    for i in 0..<60 where i % 6 != 0 { try folder.run("rm", container, "/tree/f\(i)") }
    let compacted = try folder.run("container", "compact", container, "--json")
    #expect(String(decoding: compacted.output, as: UTF8.self).contains("\"freedByteCount\""))
    let info = String(decoding: try folder.run("container", "info", container).output, as: UTF8.self)
    #expect(info.contains("live") && info.contains("dead") && info.contains("reserved"))
    try folder.run("container", "backup", container, folder.path("copy"))
    for place in [container, folder.path("copy")] {
      try folder.run("container", "verify", place)
      for i in stride(from: 0, to: 60, by: 6) {
        #expect(try folder.run("cat", place, "/tree/f\(i)").output == contents[i])
      }
      let repaired = try folder.run("container", "repair", place)
      #expect(String(decoding: repaired.output, as: UTF8.self) == "both copies of the catalog are whole\n")
    }
  }
}
