import ContainerStore
import Dispatch
import Synchronization
import Testing

struct AppendConcurrencyTests {
  /// A long one goes piece by piece: a short one must not come where the next piece is about to go.
  @Test func shortAppendsAndLongOnesGoOneAfterAnother() throws {
    let fixture = try Fixture()
    let container = fixture.container
    let long = [UInt8](repeating: 1, count: 6 << 20)
    let short = [UInt8](repeating: 2, count: 100)
    let longCount = 6
    let shortCount = Atomic<Int>(0)
    let isDone = Atomic<Bool>(false)
    try container.write([], to: "/log")
    let files = try (0..<2).map { _ in try container.openFile("/log", .readWrite) }
    DispatchQueue.concurrentPerform(iterations: 2) { thread in
      #expect(throws: Never.self) {
        if thread == 0 {
          defer { isDone.store(true, ordering: .releasing) }
          for _ in 0..<longCount { _ = try long.withUnsafeBytes { try files[0].append($0) } }
        } else {
          repeat {
            _ = try short.withUnsafeBytes { try files[1].append($0) }
            shortCount.add(1, ordering: .relaxed)
          } while !isDone.load(ordering: .acquiring)
        }
      }
    }
    for file in files { try file.close() }
    let contents = try container.contents(at: "/log")
    let expected = shortCount.load(ordering: .relaxed) * short.count
    #expect(contents.count == longCount * long.count + expected)
    #expect(contents.withUnsafeBufferPointer { $0.count { $0 == 2 } } == expected)
  }
}
