import Foundation

/// A source file as the rules see it: the words and signs of its code, without comments and without the text of strings.
struct SwiftSource {
  struct Token: Equatable {
    let text: String
    let line: Int
    let offset: Int
  }

  let lines: [Substring]
  let tokens: [Token]

  init(_ text: String) {
    lines = text.split(separator: "\n", omittingEmptySubsequences: false)
    var scanner = Scanner(Array(text.utf8))
    scanner.code(endsAtParenthesis: false)
    tokens = scanner.tokens
  }

  /// The modules that `import` lines name, of whatever form: after `import` comes at most the kind of a declaration,
  /// then the module. `import` is a keyword, so it stands for nothing else, except after a dot and as a label.
  var imports: [(module: String, line: Int)] {
    let kinds: Set = ["typealias", "struct", "class", "enum", "protocol", "let", "var", "func", "macro"]
    return tokens.indices.compactMap { index in
      guard tokens[index].text == "import", index == 0 || tokens[index - 1].text != "." else { return nil }
      var rest = tokens[(index + 1)...].drop { $0.text == "`" }
      if let kind = rest.first, kinds.contains(kind.text) { rest = rest.dropFirst().drop { $0.text == "`" } }
      guard let module = rest.first, module.text != ":" else { return nil }
      return (module.text, tokens[index].line)
    }
  }

  /// The lines on which `sequence` begins. A sign that must touch the word before it is given with it: `["try", "!"]`
  /// with `adjacent` does not find `try !done`.
  func lines(of sequence: [String], adjacent: Bool = false) -> [Int] {
    tokens.indices.compactMap { start in
      guard tokens[start].text == sequence[0] else { return nil }
      let found = tokens[start...].prefix(sequence.count)
      guard found.map(\.text) == sequence else { return nil }
      let touches = zip(found, found.dropFirst()).allSatisfy { $0.offset + $0.text.utf8.count == $1.offset }
      return touches || !adjacent ? found[start].line : nil
    }
  }
}

/// Cuts UTF-8 into tokens: words, and every other visible byte on its own.
private struct Scanner {
  private let bytes: [UInt8]
  private var position = 0
  private var line = 1
  private(set) var tokens: [SwiftSource.Token] = []

  init(_ bytes: [UInt8]) { self.bytes = bytes }

  private func at(_ ahead: Int = 0) -> UInt8 {
    position + ahead < bytes.count ? bytes[position + ahead] : 0
  }

  private mutating func step(_ count: Int = 1) {
    for _ in 0..<count where position < bytes.count {
      if bytes[position] == UInt8(ascii: "\n") { line += 1 }
      position += 1
    }
  }

  private func isAt(_ first: Unicode.Scalar, _ second: Unicode.Scalar) -> Bool {
    at() == UInt8(ascii: first) && at(1) == UInt8(ascii: second)
  }

  private var isAtLongQuote: Bool { isAt("\"", "\"") && at(2) == UInt8(ascii: "\"") }

  /// Code up to the end, or to the parenthesis that ends an interpolation.
  mutating func code(endsAtParenthesis: Bool) {
    var depth = 0
    while position < bytes.count {
      if at() <= 32 {
        step()
      } else if isAt("/", "/") {
        while position < bytes.count, at() != UInt8(ascii: "\n") { position += 1 }
      } else if isAt("/", "*") {
        blockComment()
      } else if let hashes = hashesBeforeQuote() {
        string(hashes: hashes)
      } else if Self.isWord(at()) {
        word()
      } else {
        if at() == UInt8(ascii: "(") { depth += 1 }
        if at() == UInt8(ascii: ")") {
          if endsAtParenthesis, depth == 0 { return step() }
          depth -= 1
        }
        add(from: position, to: position + 1)
        step()
      }
    }
  }

  private mutating func word() {
    let start = position
    while Self.isWord(at()) { position += 1 }
    add(from: start, to: position)
  }

  private mutating func add(from start: Int, to end: Int) {
    tokens.append(.init(text: String(decoding: bytes[start..<end], as: UTF8.self), line: line, offset: start))
  }

  private static func isWord(_ byte: UInt8) -> Bool {
    switch byte {
    case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
      UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "_"), 0x80...:
      true
    default: false
    }
  }

  private mutating func blockComment() {
    var depth = 0
    repeat {
      if isAt("/", "*") {
        depth += 1
        step(2)
      } else if isAt("*", "/") {
        depth -= 1
        step(2)
      } else {
        step()
      }
    } while depth > 0 && position < bytes.count
  }

  /// How many `#` stand before the quote that begins a string here; nil when no string begins.
  private func hashesBeforeQuote() -> Int? {
    var hashes = 0
    while at(hashes) == UInt8(ascii: "#") { hashes += 1 }
    return at(hashes) == UInt8(ascii: "\"") ? hashes : nil
  }

  private func hasHashes(_ count: Int, after ahead: Int) -> Bool {
    count == 0 || (0..<count).allSatisfy { at(ahead + $0) == UInt8(ascii: "#") }
  }

  /// A string of one line ends with its line at the latest: a quote in a regular expression then hides only that line.
  private mutating func string(hashes: Int) {
    step(hashes)
    let isLong = isAtLongQuote
    let quotes = isLong ? 3 : 1
    step(quotes)
    while position < bytes.count {
      if at() == UInt8(ascii: "\\"), hasHashes(hashes, after: 1) {
        step(1 + hashes)
        let isInterpolation = at() == UInt8(ascii: "(")
        step()
        if isInterpolation { code(endsAtParenthesis: true) }
      } else if isLong ? isAtLongQuote : at() == UInt8(ascii: "\""), hasHashes(hashes, after: quotes) {
        return step(quotes + hashes)
      } else if !isLong, at() == UInt8(ascii: "\n") {
        return
      } else {
        step()
      }
    }
  }
}
