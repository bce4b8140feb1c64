import SodiumPrimitives

/// What a password must be, how long it lasts, and how often it may be wrong. A rule that is nil or false does not apply.
public struct PasswordRules: Sendable, Hashable {
  /// Unicode scalars.
  public var minimumLength: Int?
  /// A decimal digit.
  public var requiresDigit = false
  /// A lower-case and an upper-case letter.
  public var requiresLetterCases = false
  /// Something that is neither a digit nor a letter.
  public var requiresOther = false
  /// The age in days at which a password is changed at the next unlock.
  public var maximumDays: Int?
  /// The number of former passwords that are not accepted again.
  public var history: Int?
  /// Wrong passwords in a row before the app is locked remotely.
  public var attempts: Int?
  /// Seconds without activity until the app asks for the password.
  public var idleSeconds: Int?

  /// No rules.
  public init() {}

  static let lengths: ClosedRange<Int64> = 1...1024
  static let days: ClosedRange<Int64> = 1...3650
  static let histories: ClosedRange<Int64> = 1...24
  static let attemptCounts: ClosedRange<Int64> = 1...1000
  static let idleTimes: ClosedRange<Int64> = 1...604_800

  /// A rule that a password breaks. Its description tells a person what to do.
  public enum Breach: Error, Sendable, Hashable, CustomStringConvertible {
    case tooShort(minimumLength: Int)
    case noDigit, noLetterCases, noOther
    /// It is one of the last so many.
    case usedBefore(history: Int)

    /// A sentence for a person.
    public var description: String {
      switch self {
      case .tooShort(let length): "a password has at least \(length) characters"
      case .noDigit: "a password has at least one digit"
      case .noLetterCases: "a password has at least one lower-case and one upper-case letter"
      case .noOther: "a password has at least one character that is neither a letter nor a digit"
      case .usedBefore(let history): "a password is none of the last \(history)"
      }
    }
  }

  /// The first rule that a password breaks, except for the history, which is in the container.
  func breach(of password: borrowing SecretBytes) -> Breach? {
    var counts = CharacterCounts()
    password.withUnsafeBytes { counts.count($0) }
    if let minimumLength, counts.all < minimumLength { return .tooShort(minimumLength: minimumLength) }
    if requiresDigit, counts.digits == 0 { return .noDigit }
    if requiresLetterCases, counts.lower == 0 || counts.upper == 0 { return .noLetterCases }
    if requiresOther, counts.others == 0 { return .noOther }
    return nil
  }
}

/// Unicode scalars of a password by kind. A byte that is no UTF-8 counts as one of another kind.
private struct CharacterCounts {
  var all = 0
  var digits = 0
  var lower = 0
  var upper = 0
  var others = 0

  mutating func count(_ password: UnsafeRawBufferPointer) {
    var (decoder, bytes) = (UTF8(), password.makeIterator())
    while true {
      switch decoder.decode(&bytes) {
      case .emptyInput: return
      case .error: (all, others) = (all + 1, others + 1)
      case .scalarValue(let scalar):
        all += 1
        let properties = scalar.properties
        if properties.numericType == .decimal { digits += 1 }
        if properties.isLowercase { lower += 1 }
        if properties.isUppercase { upper += 1 }
        if properties.numericType != .decimal, !properties.isAlphabetic { others += 1 }
      }
    }
  }
}
