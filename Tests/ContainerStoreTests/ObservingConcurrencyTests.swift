import ContainerStore
import TestSupport
import Testing

struct ObservingConcurrencyTests {
  /// Commits from several threads, handles that write behind, compactions and further observers that come and go: the changes still
  /// make up the tree, and end when the container is closed.
  @Test func aMirrorOfWhatSeveralThreadsDo() async throws {
    let fixture = try Fixture(durability: .grouped)
    let container = fixture.container
    let changes = try container.changes(at: "/", bufferingAtMost: 1 << 20)
    async let mirrored = changes.reduce(into: TreeMirror(of: "/", paths: ["/"])) { $0.apply($1) }
    let complaints = inThreads(4) { thread in
      var random = SplitMix64(seed: UInt64(thread))
      for i in 0..<120 {
        let path = "/\(Int.random(in: 0..<6, using: &random))"
        switch (thread, i % 5) {
        case (0, 0):
          let observer = try container.changes(at: path)
          _ = observer.makeAsyncIterator()
        case (0, 1): try container.compact()
        case (1, 0):
          if let file = try? container.openFile(path, .readWrite, create: true) {
            try? [1, 2, 3].withUnsafeBytes { try file.write($0, at: UInt64(i)) }
            try? file.close()
          }
        case (_, 2): try? container.move(path, to: "/\(Int.random(in: 0..<6, using: &random))/\(i)")
        case (_, 3): try? container.remove(path)
        default: try? container.createDirectory(path + "/\(i)", withIntermediateDirectories: true)
        }
      }
      return nil
    }
    #expect(complaints == [])
    let expected = try Set(["/"] + container.list("/", recursively: true).map { "/" + $0.path })
    try container.close()
    #expect(await mirrored.paths == expected)
  }
}
