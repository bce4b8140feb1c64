/// A reason not to show an app, and perhaps to take its keys (Documentation/RUNTIME.md, "The state of an app").
public enum Withdrawal: Sendable, Hashable {
  /// Nobody used the app for the time that the password rules set.
  case idle
  /// The password rules require a new password.
  case passwordChange
  /// The app blocked itself.
  case localBlock(LocalBlock)
  /// The owner blocked the app.
  case managementBlock(Notice)
  /// The user is entitled to the app, and not to this version of it.
  case versionNotEntitled
  /// The user is not entitled to the app.
  case notEntitled
  /// The app is locked until somebody types the owner's unlock code.
  case remoteLock
  /// The container was destroyed.
  case wiped

  /// Whether the keys leave memory. They stay under the others, for work in the background.
  public var takesKeys: Bool {
    switch self {
    case .idle, .passwordChange, .localBlock: false
    case .managementBlock, .versionNotEntitled, .notEntitled, .remoteLock, .wiped: true
    }
  }

  /// A sentence for a person: the text of whoever blocked the app, if there is one.
  public var message: String {
    let notice: Notice? =
      switch self {
      case .localBlock(let block): block.notice
      case .managementBlock(let notice): notice
      default: nil
      }
    let text = [notice?.title, notice?.text].compactMap(\.self).filter { !$0.isEmpty }
    return text.isEmpty ? code.message : text.joined(separator: ": ")
  }

  /// The code of the events about this withdrawal.
  public var code: AuthorizationCode {
    switch self {
    case .idle: .idleLockout
    case .passwordChange: .passwordChangeRequired
    case .localBlock, .managementBlock: .blocked
    case .versionNotEntitled: .versionNotEntitled
    case .notEntitled: .notEntitled
    case .remoteLock: .remoteLockout
    case .wiped: .wiped
    }
  }
}

/// A title and a text for the person, 1 KiB each.
public struct Notice: Sendable, Hashable, Codable {
  /// The most bytes of UTF-8 in a title, and in a text.
  public static let byteCountMax = 1024

  /// The heading.
  public let title: String
  /// The explanation.
  public let text: String

  /// Shortens title and text to ``byteCountMax`` bytes each, at the end of a character.
  public init(title: String, text: String) {
    (self.title, self.text) = (Self.shortened(title), Self.shortened(text))
  }

  /// Reads a stored notice.
  public init(from decoder: any Decoder) throws {
    let values = try decoder.container(keyedBy: CodingKeys.self)
    self.init(
      title: try values.decode(String.self, forKey: .title),
      text: try values.decode(String.self, forKey: .text))
  }

  static func shortened(_ text: String, to byteCountMax: Int = Notice.byteCountMax) -> String {
    guard text.utf8.count > byteCountMax else { return text }
    var (short, room) = ("", byteCountMax)
    // By scalars: one character may have any number of bytes.
    for scalar in text.unicodeScalars {
      room -= UTF8.width(scalar)
      if room < 0 { break }
      short.unicodeScalars.append(scalar)
    }
    return short
  }
}

/// A block that the app itself decided. It is kept over restarts, and ends when the app ends it.
public struct LocalBlock: Sendable, Hashable, Codable {
  /// The most blocks that are kept. Another one takes the place of the oldest.
  public static let countMax = 64

  /// The app's name for this block.
  public let id: String
  /// What the person reads.
  public let notice: Notice

  /// The most bytes of UTF-8 in an id.
  public static let idByteCountMax = 255

  /// A block of this name, which is shortened to ``idByteCountMax`` bytes.
  public init(id: String, notice: Notice) {
    (self.id, self.notice) = (Notice.shortened(id, to: Self.idByteCountMax), notice)
  }
}
