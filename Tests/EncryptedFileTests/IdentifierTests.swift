import EncryptedFile
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

  @Test func labelIsPaddedWithZeros() {
    #expect(label("OD1-segment") == Array("OD1-segment".utf8) + [0, 0, 0, 0, 0])
    #expect(label("") == [UInt8](repeating: 0, count: 16))
    #expect(label("0123456789abcdef").count == 16)
  }
}
