import SodiumPrimitives
import Testing

@testable import EncryptedFile

struct MessageHeadersTests {
  private func headers(_ count: Int, key: [UInt8], place: [UInt8]) -> [[UInt8]] {
    let headers = MessageHeaders(count, key: key.span.bytes, place: place.span.bytes)
    var all: [[UInt8]] = []
    for number in 0..<count { all.append(Array(headers[number])) }
    return all
  }

  @Test func headersDifferBetweenCallsWithTheSameInputs() {
    let key = Random.bytes(32)
    let place = Random.bytes(32)
    let seen = (0..<500).flatMap { _ in headers(1, key: key, place: place) }
    #expect(Set(seen).count == 500)
  }

  @Test func headersOfABatchDiffer() {
    let key = Random.bytes(32)
    let seen = (0..<5).flatMap { _ in headers(200, key: key, place: []) }
    #expect(Set(seen).count == 1_000)
    // secretstream takes 16 bytes for the key and 8 for the nonce: both parts differ.
    #expect(Set(seen.map { $0[0..<16] }).count == 1_000)
    #expect(Set(seen.map { $0[16..<24] }).count == 1_000)
  }

  @Test(arguments: [0, 1, 79, 80, 81, 500])
  func takesPlaceOfAnyLength(count: Int) {
    #expect(Set(headers(2, key: Random.bytes(32), place: Random.bytes(count))).count == 2)
  }
}
