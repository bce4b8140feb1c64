import ServiceValues
import Testing

struct IdentifierTests {
  private static let part63 = String(repeating: "a", count: 63)
  private static let id255 = [part63, part63, part63, String(repeating: "a", count: 61), "b"].joined(
    separator: ".")

  @Test(arguments: [
    "com.good.gd.icc", "a.b", "com.good.gdservice.transfer-file", "com.3m.x", "0.0", "a--b.c", id255,
  ])
  func takesIds(text: String) throws {
    #expect(try ServiceIdentifier(text).text == text)
    #expect(try ApplicationID(text).description == text)
  }

  @Test func capitalsAreForAppsOnlyAndTellTwoApart() throws {
    #expect(try ApplicationID("com.example.Notes").text == "com.example.Notes")
    #expect(try ApplicationID("com.example.Notes") != ApplicationID("com.example.notes"))
    #expect(try ApplicationID("A.Z").text == "A.Z")
    let service = try servicesError(.invalidParams) { _ = try ServiceIdentifier("com.Good.x") }
    #expect(place(service) == "service id: it has capital letters: write it in lower case")
  }

  @Test(arguments: [
    ("", "it is empty"), ("com", "it has one part: write it like com.example.name"),
    (".a", "a part between dots is empty"),
    ("a.", "a part between dots is empty"), ("a..b", "a part between dots is empty"),
    ("-a.b", "a part begins or ends with a hyphen"), ("a.b-", "a part begins or ends with a hyphen"),
    ("a_b.c", "it has something other than the letters a to z, digits, hyphens and dots"),
    ("a.b ", "it has something other than the letters a to z, digits, hyphens and dots"),
    ("a.b\n", "it has something other than the letters a to z, digits, hyphens and dots"),
    ("a.b\u{0}", "it has something other than the letters a to z, digits, hyphens and dots"),
    ("a/../b.c", "it has something other than the letters a to z, digits, hyphens and dots"),
    ("é.b", "it has something other than the letters a to z, digits, hyphens and dots"),
    (part63 + "a.b", "a part has 64 bytes, and 63 are allowed"),
    (id255 + "b", "it has 256 bytes, and 255 are allowed"),
  ])
  func refusesOtherIdsAndSaysWhy(text: String, fault: String) throws {
    let service = try servicesError(.invalidParams) { _ = try ServiceIdentifier(text) }
    #expect(place(service) == "service id: \(fault)")
    let app = try servicesError(.invalidParams) { _ = try ApplicationID(text) }
    #expect(
      place(app) == "application id: \(fault.replacing("the letters a to z", with: "letters of ASCII"))")
  }

  @Test(arguments: ["1", "0", "1.0", "1.0.0", "1.0.0.0", "10.20.30.40", "999999999.0"])
  func takesVersions(text: String) throws {
    #expect(try ServiceVersion(text).text == text)
  }

  @Test(arguments: [
    ("", "it is empty"), ("1.", "a segment between dots is empty"), (".1", "a segment between dots is empty"),
    ("1..0", "a segment between dots is empty"), ("01", "a segment has a leading zero"),
    ("1.00", "a segment has a leading zero"), ("1.0.0.0.0", "it has 5 segments, and 4 are allowed"),
    ("1.a", "it has something other than digits and dots"),
    ("-1", "it has something other than digits and dots"),
    (" 1", "it has something other than digits and dots"),
    ("1\n", "it has something other than digits and dots"),
    ("١", "it has something other than digits and dots"),
    ("1234567890", "a segment has 10 digits, and 9 are allowed"),
  ])
  func refusesOtherVersionsAndSaysWhy(text: String, fault: String) throws {
    let error = try servicesError(.invalidParams) { _ = try ServiceVersion(text) }
    #expect(place(error) == "version: \(fault)")
  }

  @Test func versionsAreNamesAndNoQuantities() throws {
    #expect(try ServiceVersion("1.0.0") != ServiceVersion("1.0.0.0"))
    #expect(try ServiceVersion("1.0.0.0") == ServiceVersion("1.0.0.0"))
  }
}
