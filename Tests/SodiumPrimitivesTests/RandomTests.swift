import SodiumPrimitives
import Testing

struct RandomTests {
  @Test(arguments: [16, 32, 1_000])
  func drawsOtherBytesEachTime(count: Int) {
    let first = Random.bytes(count)
    #expect(first.count == count)
    #expect(first != Random.bytes(count))
  }

  @Test func fillsTheWholeBufferAndNothingElse() {
    var bytes = [UInt8](repeating: 0, count: 64)
    var seen = [UInt8](repeating: 0, count: 32)
    for _ in 0..<20 {
      bytes.withUnsafeMutableBytes { Random.fill(UnsafeMutableRawBufferPointer(rebasing: $0[16..<48])) }
      for i in 0..<32 { seen[i] |= bytes[16 + i] }
    }
    #expect(!seen.contains(0))  // twenty draws of zero in one place: 2⁻¹⁶⁰
    #expect(bytes[0..<16].allSatisfy { $0 == 0 } && bytes[48...].allSatisfy { $0 == 0 })
  }

  @Test func acceptsAnEmptyBuffer() {
    Random.fill(UnsafeMutableRawBufferPointer(start: nil, count: 0))
    var bytes: [UInt8] = [7]
    bytes.withUnsafeMutableBytes { Random.fill(UnsafeMutableRawBufferPointer(rebasing: $0[0..<0])) }
    #expect(bytes == [7])
    #expect(Random.bytes(0) == [])
  }
}
