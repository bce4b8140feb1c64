import SodiumPrimitives
import Testing

@testable import AppRuntime

struct PasswordRulesTests {
  private func breach(_ password: String, _ change: (inout PasswordRules) -> Void) throws -> PasswordRules
    .Breach?
  {
    var rules = PasswordRules()
    change(&rules)
    return rules.breach(of: try SecretBytes(utf8: password))
  }

  @Test func withoutRulesEveryPasswordIsTaken() throws { #expect(try breach("", { _ in }) == nil) }

  @Test(arguments: [("aaaaaaa", false), ("aaaaaaaa", true), ("ääääääää", true), ("😀😀😀😀😀😀😀", false)])
  func countsCharacters(password: String, fits: Bool) throws {
    let breach = try breach(password) { $0.minimumLength = 8 }
    #expect(breach == (fits ? nil : .tooShort(minimumLength: 8)))
  }

  @Test func requiresKindsOfCharacters() throws {
    #expect(try breach("abc") { $0.requiresDigit = true } == .noDigit)
    #expect(try breach("ab3") { $0.requiresDigit = true } == nil)
    // A digit of another script is a digit.
    #expect(try breach("ab٣") { $0.requiresDigit = true } == nil)
    #expect(try breach("abc") { $0.requiresLetterCases = true } == .noLetterCases)
    #expect(try breach("ABC") { $0.requiresLetterCases = true } == .noLetterCases)
    #expect(try breach("äÖ") { $0.requiresLetterCases = true } == nil)
    #expect(try breach("aB3") { $0.requiresOther = true } == .noOther)
    #expect(try breach("aB3 ") { $0.requiresOther = true } == nil)
  }

  @Test func bytesThatAreNoTextCountAsOtherCharacters() throws {
    var rules = PasswordRules()
    (rules.minimumLength, rules.requiresOther) = (4, true)
    let bytes: [UInt8] = [0xFF, 0xFE, 0x61, 0xC3]
    var password = try SecretBytes(count: bytes.count)
    password.withUnsafeMutableBytes { $0.copyBytes(from: bytes) }
    #expect(rules.breach(of: password) == nil)
    #expect(PasswordRules.Breach.noDigit.description.contains("digit"))
  }
}
