import Foundation
import PushWire
import Testing

struct TokenTests {
  @Test func aTokenHasTheDocumentedShape() throws {
    let token = PushToken(relay: try #require(RelayName("relay-1.example")))
    let components = token.text.split(separator: " ", omittingEmptySubsequences: false).map(String.init)
    #expect(components.count == 4)
    #expect(components[..<3].joined(separator: " ") == token.prefix)
    #expect(components[0].count == 8 && components[1].count == 4)
    #expect((components[0] + components[1]).allSatisfy { $0.isHexDigit && !$0.isUppercase })
    #expect(components[2] == "app.gdpush.relay-1.example")
    #expect(components[3] == token.secret)
    #expect(Data(base64URL: token.secret)?.count == 32)
    #expect(PushToken(token.text) == token)
  }

  @Test func tokensDiffer() {
    let tokens = (0..<10_000).map { _ in PushToken(relay: .local) }
    #expect(Set(tokens.map(\.secret)).count == tokens.count)
    #expect(Set(tokens.map(\.prefix)).count == tokens.count)
  }

  @Test func smallNumbersArePadded() {
    let token = PushToken(number: 0x1_0002, relay: .local, secret: Data(repeating: 0xff, count: 32))
    #expect(token.prefix == "00000001 0002 app.gdpush.local")
    #expect(token.secret == String(repeating: "_", count: 42) + "8")
  }

  @Test func theLongestTokenHas132Bytes() throws {
    let name = try #require(RelayName(String(repeating: "z", count: 63)))
    #expect(PushToken(relay: name).text.utf8.count == 132)
  }

  /// Tokens of other relays are taken as they are: three components are all that is known of them.
  @Test(arguments: [
    "a b c", "00000001 0a 010.010.010.010 1234567890 1234567890 0123456789abcdef0123456789abcdef",
    "a b " + String(repeating: "c", count: 508),
  ])
  func textsWithTheFormatOfAToken(text: String) throws {
    let token = try #require(PushToken(text))
    #expect(token.text == text)
    #expect(token.prefix == text.split(separator: " ")[..<3].joined(separator: " "))
  }

  @Test(arguments: [
    "", " ", "a", "a b", "a b ", " a b", "a  b c", "a b c ", "a\tb c d", "a b c\n", "a b ü", "a b c\u{7f}",
    "a b " + String(repeating: "c", count: 509),
  ])
  func textsWithoutIt(text: String) {
    #expect(PushToken(text) == nil)
  }

  @Test(arguments: ["", "Local", "a b", "a_b", "ü", String(repeating: "a", count: 64)])
  func namesThatARelayCannotHave(name: String) {
    #expect(RelayName(name) == nil)
  }

  /// Vectors of RFC 4648, section 10, without their padding.
  @Test(arguments: [
    ("", ""), ("f", "Zg"), ("fo", "Zm8"), ("foo", "Zm9v"), ("foob", "Zm9vYg"), ("fooba", "Zm9vYmE"),
    ("foobar", "Zm9vYmFy"),
  ])
  func base64URL(text: String, digits: String) {
    #expect(Data(text.utf8).base64URL == digits)
    #expect(Data(base64URL: digits) == Data(text.utf8))
  }

  @Test func base64URLIsStrict() {
    #expect(Data([0xfb, 0xff]).base64URL == "-_8")
    for text in ["Zg==", "Zh", "Z", "+/8", "Zm9 v", "Zm9v\n", "ü"] {
      #expect(Data(base64URL: text) == nil, "\(text)")
    }
  }
}
