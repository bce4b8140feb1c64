import Testing

@testable import EncryptedFile

struct LabelTests {
  @Test func labelIsPaddedWithZeros() {
    #expect(label("OD1-segment") == Array("OD1-segment".utf8) + [0, 0, 0, 0, 0])
    #expect(label("") == [UInt8](repeating: 0, count: 16))
    #expect(label("0123456789abcdef").count == 16)
  }
}
