import EncryptedFile
import Testing

@testable import ContainerStore

struct BlockCacheTests {
  private func block(_ byte: UInt8) throws -> TableBlock {
    var writer = ByteWriter()
    writer.append(UInt32(1))
    writer.append(UInt8(1))
    writer.append(UInt16(1))
    writer.append(byte)
    writer.append(UInt32(1000))
    writer.append([UInt8](repeating: byte, count: 1000))
    return try TableBlock(writer.bytes, kind: .data, firstKey: CatalogKey(bytes: [byte]))
  }

  private func place(_ number: Int) -> BlockCache.Place {
    BlockCache.Place(table: .zero, offset: UInt64(number))
  }

  @Test(arguments: 2...5)
  func aFullCacheKeepsTheNewestBlocks(count: Int) throws {
    let size = try block(1).memoryByteCount
    let cache = BlockCache(byteCountMax: 8 * size)
    for number in 0..<8 { _ = try cache.block(at: place(number)) { try block(1) } }
    // As lookups in several tables do: each needs its own block again and again.
    var loads = 0
    for _ in 0..<100 {
      for number in 0..<count {
        _ = try cache.block(at: place(100 + number)) {
          loads += 1
          return try block(2)
        }
      }
    }
    #expect(loads == count)
  }

  @Test func whatIsUsedStaysWhenMuchIsReadOnce() throws {
    let size = try block(1).memoryByteCount
    let cache = BlockCache(byteCountMax: 8 * size)
    var loads = 0
    for number in 0..<1000 {
      _ = try cache.block(at: place(number)) { try block(1) }
      _ = try cache.block(at: place(5000)) {
        loads += 1
        return try block(2)
      }
    }
    #expect(loads == 1)
  }
}
