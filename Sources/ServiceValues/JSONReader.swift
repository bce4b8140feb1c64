/// Reads one JSON text (RFC 8259), strictly, with nothing else behind it.
///
/// Foundation's readers cannot be used: they do not tell `1` from `1.0` on every platform, take the last of two members of one
/// name, and do not say where the text is wrong.
struct JSONReader {
  /// Objects and arrays inside one another. A definition of values 32 deep needs 70.
  static let depthMax = 128

  private let bytes: [UInt8]
  private var offset = 0
  private var path: ServicePath

  private init(_ bytes: [UInt8], root: String) {
    self.bytes = bytes
    path = ServicePath(root)
  }

  /// An integer without a fraction and an exponent is `.integer`, every other number `.number`.
  static func read(_ bytes: [UInt8], root: String) throws(Problem) -> ServiceValue {
    if let bad = firstOffsetThatIsNotUTF8(bytes) {
      throw Problem(path: ServicePath(root), detail: "byte \(bad) is not UTF-8")
    }
    var reader = JSONReader(bytes, root: root)
    let value = try reader.value()
    reader.skipSpace()
    if reader.offset < bytes.count { throw reader.problem("something follows the value") }
    return value
  }

  private static func firstOffsetThatIsNotUTF8(_ bytes: [UInt8]) -> Int? {
    if String(validating: bytes, as: UTF8.self) != nil { return nil }
    var decoder = UTF8()
    var iterator = bytes.makeIterator()
    var offset = 0
    while case .scalarValue(let scalar) = decoder.decode(&iterator) { offset += UTF8.width(scalar) }
    return offset
  }

  private mutating func value() throws(Problem) -> ServiceValue {
    skipSpace()
    switch peek {
    case UInt8(ascii: "{"): return .object(try object())
    case UInt8(ascii: "["): return .array(try array())
    case UInt8(ascii: "\""): return .string(try string())
    case UInt8(ascii: "-"), UInt8(ascii: "0")...UInt8(ascii: "9"): return try number()
    case UInt8(ascii: "t"): return try word("true", .boolean(true))
    case UInt8(ascii: "f"): return try word("false", .boolean(false))
    case UInt8(ascii: "n"): return try word("null", .null)
    default: throw problem("expected a value")
    }
  }

  private mutating func object() throws(Problem) -> [String: ServiceValue] {
    try enter()
    var members: [String: ServiceValue] = [:]
    skipSpace()
    if take(UInt8(ascii: "}")) { return members }
    repeat {
      skipSpace()
      guard peek == UInt8(ascii: "\"") else { throw problem("expected the name of a member") }
      let key = try string()
      path.steps.append(.key(key))
      if let fault = ObjectKey.fault(in: key) { throw problem(fault) }
      if members[key] != nil { throw problem("a second member of that name") }
      skipSpace()
      if !take(UInt8(ascii: ":")) { throw problem("expected a colon") }
      members[key] = try value()
      path.steps.removeLast()
      skipSpace()
    } while take(UInt8(ascii: ","))
    if !take(UInt8(ascii: "}")) { throw problem("expected a comma or a closing brace") }
    return members
  }

  private mutating func array() throws(Problem) -> [ServiceValue] {
    try enter()
    var elements: [ServiceValue] = []
    skipSpace()
    if take(UInt8(ascii: "]")) { return elements }
    repeat {
      path.steps.append(.index(elements.count))
      elements.append(try value())
      path.steps.removeLast()
      skipSpace()
    } while take(UInt8(ascii: ","))
    if !take(UInt8(ascii: "]")) { throw problem("expected a comma or a closing bracket") }
    return elements
  }

  /// Each step of the path is an object or array around the present one.
  private mutating func enter() throws(Problem) {
    if path.steps.count >= Self.depthMax {
      throw problem("more than \(Self.depthMax) objects and arrays inside one another")
    }
    offset += 1
  }

  private mutating func word(_ word: StaticString, _ value: ServiceValue) throws(Problem) -> ServiceValue {
    for i in 0..<word.utf8CodeUnitCount {
      if !take(word.utf8Start[i]) { throw problem("expected a value") }
    }
    return value
  }

  private mutating func number() throws(Problem) -> ServiceValue {
    let start = offset
    var isInteger = true
    _ = take(UInt8(ascii: "-"))
    if !take(UInt8(ascii: "0")) { try digits() }
    if take(UInt8(ascii: ".")) {
      isInteger = false
      try digits()
    }
    if take(UInt8(ascii: "e")) || take(UInt8(ascii: "E")) {
      isInteger = false
      if !take(UInt8(ascii: "+")) { _ = take(UInt8(ascii: "-")) }
      try digits()
    }
    let text = String(decoding: bytes[start..<offset], as: UTF8.self)
    if isInteger {
      guard let value = Int64(text) else { throw problem("an integer has 64 bits; this one needs more") }
      return .integer(value)
    }
    guard let value = Double(text), value.isFinite else {
      throw problem("a number has 64 bits; this one is too large")
    }
    return .number(value)
  }

  private mutating func digits() throws(Problem) {
    let start = offset
    while case UInt8(ascii: "0")...UInt8(ascii: "9") = peek { offset += 1 }
    if offset == start { throw problem("expected a digit") }
  }

  private mutating func string() throws(Problem) -> String {
    offset += 1
    var text: [UInt8] = []
    while true {
      let start = offset
      while peek >= 0x20 && peek != UInt8(ascii: "\"") && peek != UInt8(ascii: "\\") { offset += 1 }
      text += bytes[start..<offset]
      switch peek {
      case UInt8(ascii: "\""):
        offset += 1
        return String(decoding: text, as: UTF8.self)
      case UInt8(ascii: "\\"):
        offset += 1
        try escape(into: &text)
      default:
        throw problem(offset < bytes.count ? "a control character in a string" : "a string has no end")
      }
    }
  }

  private mutating func escape(into text: inout [UInt8]) throws(Problem) {
    let letter = peek
    offset += 1
    switch letter {
    case UInt8(ascii: "\""), UInt8(ascii: "\\"), UInt8(ascii: "/"): text.append(letter)
    case UInt8(ascii: "b"): text.append(0x08)
    case UInt8(ascii: "f"): text.append(0x0C)
    case UInt8(ascii: "n"): text.append(0x0A)
    case UInt8(ascii: "r"): text.append(0x0D)
    case UInt8(ascii: "t"): text.append(0x09)
    case UInt8(ascii: "u"):
      var number = UInt32(try hexDigits())
      if 0xD800...0xDBFF ~= number, take(UInt8(ascii: "\\")), take(UInt8(ascii: "u")) {
        let low = UInt32(try hexDigits())
        guard 0xDC00...0xDFFF ~= low else { throw problem("half of a surrogate pair") }
        number = 0x10000 + (number - 0xD800) << 10 + (low - 0xDC00)
      }
      guard let scalar = Unicode.Scalar(number) else { throw problem("half of a surrogate pair") }
      text += UTF8.encode(scalar).map { Array($0) } ?? []
    default:
      offset -= 1
      throw problem("an escape that JSON does not have")
    }
  }

  private mutating func hexDigits() throws(Problem) -> UInt16 {
    var number: UInt16 = 0
    for _ in 0..<4 {
      guard let digit = Character(Unicode.Scalar(peek)).hexDigitValue, peek < 0x80 else {
        throw problem("expected four hexadecimal digits")
      }
      number = number << 4 | UInt16(digit)
      offset += 1
    }
    return number
  }

  /// 0 at the end: no token begins with it, and inside of strings it is a control character.
  private var peek: UInt8 { offset < bytes.count ? bytes[offset] : 0 }

  private mutating func take(_ byte: UInt8) -> Bool {
    guard offset < bytes.count, bytes[offset] == byte else { return false }
    offset += 1
    return true
  }

  private mutating func skipSpace() {
    while offset < bytes.count {
      switch bytes[offset] {
      case 0x20, 0x09, 0x0A, 0x0D: offset += 1
      default: return
      }
    }
  }

  /// Lines and columns count from 1, columns in bytes.
  private func problem(_ detail: String) -> Problem {
    let before = bytes.prefix(offset)
    let line = before.count { $0 == 0x0A } + 1
    let column = offset - (before.lastIndex(of: 0x0A) ?? -1)
    return Problem(path: path, detail: "\(detail), in line \(line), column \(column)")
  }
}
