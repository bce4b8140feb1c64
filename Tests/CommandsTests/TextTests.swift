import SecureFiles
import ServiceValues
import Testing

@testable import Commands

/// What is printed, without a process.
struct TextTests {
  @Test(
    arguments: [
      (0, "0 B"), (1, "1 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (1536, "1.5 KiB"), (1_048_575, "1.0 MiB"),
      (4 << 30, "4.0 GiB"), (.max, "16.0 EiB"),
    ] as [(UInt64, String)])
  func writesByteCounts(count: UInt64, text: String) { #expect(Quantity.bytes(count) == text) }

  @Test(
    arguments: [(0, "0:00"), (0.2, "0:01"), (59, "0:59"), (61, "1:01"), (3723, "1:02:03")]
      as [(Double, String)])
  func writesDurations(seconds: Double, text: String) { #expect(Quantity.duration(seconds: seconds) == text) }

  @Test(
    arguments: [
      (0, "1970-01-01T00:00:00.000000000Z"), (-1, "1969-12-31T23:59:59.999999999Z"),
      (1_709_210_096_000_000_007, "2024-02-29T12:34:56.000000007Z"),
      (.min, "1677-09-21T00:12:43.145224192Z"), (.max, "2262-04-11T23:47:16.854775807Z"),
    ] as [(Int64, String)])
  func writesTimestamps(nanoseconds: Int64, text: String) { #expect(Quantity.timestamp(nanoseconds) == text) }

  @Test(
    arguments: [
      ("/a/b", "b"), ("b/", "b"), ("/", nil), ("a/..", nil), (".", nil), ("/a/\u{301}b", "\u{301}b"),
    ] as [(String, String?)])
  func findsTheBaseName(path: String, name: String?) { #expect(PathText.baseName(path) == name) }

  @Test(
    arguments: [
      ("a.txt", "a-2.txt"), ("a", "a-2"), (".hidden", ".hidden-2"), (".a.b", ".a-2.b"), ("a.", "a.-2"),
      ("..x", ".-2.x"), (String(repeating: "x", count: 255), String(repeating: "x", count: 253) + "-2"),
      (String(repeating: "é", count: 125) + ".txt", String(repeating: "é", count: 124) + "-2.txt"),
    ] as [(String, String)])
  func numbersNames(name: String, text: String) { #expect(FreeName.text(name, 2) == text) }

  @Test(arguments: [[], [1], [1, 2], [1, 2, 3, 4, 5, 6, 7], [2], [1, 3], Array(1...100_000)])
  func findsAFreeNumberWithFewQuestions(taken: [Int]) {
    let set = Set(taken)
    var questions = 0
    let free = FreeName.number {
      questions += 1
      return set.contains($0)
    }
    #expect(!set.contains(free) && (free == 1 || set.contains(free - 1)))
    #expect(questions < 40)
    // Without gaps it is the next one.
    if taken == Array(1..<(taken.count + 1)) { #expect(free == taken.count + 1) }
  }

  /// What other apps wrote reaches a terminal with nothing that moves the cursor or the writing direction.
  @Test(
    arguments: [
      ("a\u{9b}31m", #"a\u{9b}31m"#, #""a\u009b31m""#),
      ("\u{202e}x\u{2066}", #"\u{202e}x\u{2066}"#, #""\u202ex\u2066""#),
      ("\u{7f}\u{85}\u{200f}", #"\x7f\u{85}\u{200f}"#, #""\u007f\u0085\u200f""#), ("é 漢", "é 漢", #""é 漢""#),
    ])
  func escapesWhatATerminalWouldObey(text: String, printed: String, json: String) throws {
    #expect(PrintableText.of(text) == printed)
    #expect(PrintableText.ofJSON("\"\(text)\"") == json)
    #expect(try JSONText.of([text]) == "[\(json)]\n")
  }

  @Test func escapesWhatTheReceiverOfARefusedMessageWrote() {
    let error = ServicesError(.general, detail: "\u{1b}[2J\u{9b}\u{202e}")
    let line = OutboxDescription.refusal(of: "7", error)
    #expect(line.hasPrefix("7: ") && line.hasSuffix("\n"))
    #expect(line.dropLast().unicodeScalars.allSatisfy { $0.value >= 0x20 && $0.isASCII }, "\(line)")
  }

  @Test(arguments: [("/a/b", "/a"), ("a", "."), ("/a", "/"), ("/", "/"), ("a//b//", "a")])
  func findsTheParent(path: String, parent: String) { #expect(PathText.parent(path) == parent) }

  @Test(arguments: [1, 5, 20, 40, 60, 80, 200])
  func fitsTheBarIntoTheTerminal(columns: Int) {
    let progress = ProgressState(bytesDone: 1 << 30, byteCount: 4 << 30, seconds: 1.5)
    let line = ProgressBar.line(title: "put", progress, columns: columns)
    #expect(line.utf8.count <= max(0, columns - 1))
    if columns >= 20 { #expect(line.contains("25%")) }
    if columns >= 80 { #expect(line.contains("1.0 GiB of 4.0 GiB  682.7 MiB/s  0:05 left  [")) }
    let unknown = ProgressState(bytesDone: 5, byteCount: nil, seconds: 0)
    #expect(ProgressBar.line(title: "put", unknown, columns: columns).utf8.count <= max(0, columns - 1))
  }

  @Test func everyErrorSaysWhatToDo() {
    for code in CommandError.Code.allCases {
      #expect(!code.what.isEmpty && !code.remedy.isEmpty)
      #expect(code.what.first!.isLowercase || code.what.first!.isUppercase)
      #expect(!code.what.hasSuffix("."))
    }
  }
}
