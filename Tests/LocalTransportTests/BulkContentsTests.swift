import Foundation
import ServiceWire
import SodiumPrimitives
import Testing

@testable import LocalTransport

/// Contents in memory of this process; those in slots are with BulkLaneMemoryTests.
struct BulkContentsTests {
  private static func contents(_ bytes: [UInt8], _ pool: BulkMemoryPool) -> BulkContents {
    let memory = pool.take(bytes.count)
    memory.bytes.copyBytes(from: bytes)
    return BulkContents(byteCount: bytes.count, .memory(memory, of: pool))
  }

  @Test func areReadInPieces() throws {
    let bytes = Random.bytes(100)
    let contents = Self.contents(bytes, BulkMemoryPool())
    for (offset, count) in [(0, 100), (0, 1), (99, 1), (50, 20), (100, 0), (0, 0)] {
      var read = [UInt8](repeating: 0, count: count)
      try read.withUnsafeMutableBytes { try contents.read(at: offset, into: $0) }
      #expect(read == Array(bytes[offset..<offset + count]))
    }
    #expect(try BulkContents(byteCount: 0, .nowhere).bytes() == [])
  }

  @Test(arguments: [(-1, 1), (0, 101), (100, 1), (101, 0)])
  func areNotReadBeyondTheirEnds(offset: Int, count: Int) async {
    await #expect(processExitsWith: .failure) { [offset, count] in
      let contents = BulkContents(byteCount: 100, .nowhere)
      var read = [UInt8](repeating: 0, count: count)
      try read.withUnsafeMutableBytes { try contents.read(at: offset, into: $0) }
    }
  }

  @Test func giveTheirMemoryToTheNextOnes() {
    let pool = BulkMemoryPool()
    let large = BulkMemoryPool.smallByteCountMax + 1
    func addresses(_ count: Int) -> [UnsafeMutableRawPointer?] {
      let memory = (0..<count).map { _ in pool.take(large) }
      for memory in memory { pool.keep(memory) }
      return memory.map { $0.bytes.baseAddress }
    }
    let first = addresses(BulkMemoryPool.countMax)
    #expect(Set(addresses(BulkMemoryPool.countMax)) == Set(first))
    // Memory of its own size is not kept, nor more than a few.
    weak let small = { () -> BulkMemory? in
      let memory = pool.take(large - 1)
      #expect(memory.bytes.count == large - 1)
      pool.keep(memory)
      return memory
    }()
    #expect(small == nil)
    let more = (0...BulkMemoryPool.countMax).map { _ in pool.take(large) }
    for memory in more { pool.keep(memory) }
    #expect(more.allSatisfy { $0.bytes.count == BulkFrame.contentsByteCountMax })
    #expect(
      (0...BulkMemoryPool.countMax).map { _ in pool.take(large) }.count { new in more.contains { $0 === new }
      } == 3)
    pool.close()
    for memory in more { pool.keep(memory) }
    let fresh = pool.take(large)
    #expect(!more.contains { $0 === fresh })
  }
}
