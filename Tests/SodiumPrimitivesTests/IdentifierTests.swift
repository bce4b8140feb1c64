import SodiumPrimitives
import Testing

struct IdentifierTests {
  @Test func keepsItsBytesInOrder() {
    let bytes = Array(0..<16 as Range<UInt8>)
    #expect(Identifier(bytes).bytes == bytes)
    #expect(Identifier(bytes).hex == "000102030405060708090a0b0c0d0e0f")
    #expect(Identifier([UInt8](repeating: 0xF0, count: 16)).hex == String(repeating: "f0", count: 16))
    #expect(Identifier.zero.bytes == [UInt8](repeating: 0, count: 16))
  }

  @Test func randomDiffersEachTime() {
    #expect(Set((0..<100).map { _ in Identifier.random() }).count == 100)
  }

  @Test func wontBeMadeOfOtherLengths() async {
    await #expect(processExitsWith: .failure) { _ = Identifier([1, 2, 3]) }
  }

  @Test func takesSixteenBytesOfAPeerAndNothingElse() {
    let bytes = Array(1..<17 as Range<UInt8>)
    #expect(Identifier(exactly: bytes)?.bytes == bytes)
    #expect(Identifier(exactly: bytes.dropFirst()) == nil)
    #expect(Identifier(exactly: bytes + [0]) == nil)
    #expect(Identifier(exactly: []) == nil)
  }

  @Test func isReadFromItsDescription() {
    let id = Identifier.random()
    #expect(Identifier(id.description) == id)
    #expect(Identifier(hex: String(repeating: "A", count: 32)) == nil)
    #expect(Identifier(hex: "+" + String(repeating: "a", count: 31)) == nil)
    #expect(Identifier(hex: String(repeating: "a", count: 31)) == nil)
    #expect(Identifier(hex: String(repeating: "a", count: 33)) == nil)
  }

  @Test func isOrderedAsItsBytes() {
    let ids = (0..<100).map { _ in Identifier.random() }
    #expect(ids.sorted().map(\.bytes) == ids.map(\.bytes).sorted { $0.lexicographicallyPrecedes($1) })
  }
}
