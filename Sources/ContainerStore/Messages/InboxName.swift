import EncryptedFile

/// Names below the inbox.
enum InboxName {
  static let inbox = FileName("Inbox")!

  /// Checks an application id. Throws `invalidName` if it is no file name or has control
  /// characters.
  static func sender(_ id: String) throws -> FileName {
    guard let name = FileName(id), !name.bytes.contains(where: isControl) else {
      throw ContainerError(.invalidName, path: id, detail: "the sender's application id")
    }
    return name
  }

  /// The sender with an application id; nil for an id that ``sender(_:)`` refuses.
  static func sender(bytes: some Sequence<UInt8>) -> FileName? {
    String(validating: bytes, as: UTF8.self).flatMap { try? sender($0) }
  }

  /// Whether a path is `/Inbox/<sender>/` and one more name.
  static func isDirectory(_ path: [UInt8], of sender: FileName) -> Bool {
    let parent = Array(StorePath.text(directory(of: sender)).utf8) + [UInt8(ascii: "/")]
    return path.starts(with: parent) && FileName(bytes: Array(path.dropFirst(parent.count))) != nil
      && String(validating: path, as: UTF8.self) != nil
  }

  /// The directory that contains a sender's messages.
  static func directory(of sender: FileName) -> [FileName] { [inbox, sender] }

  /// `yyyyMMdd'T'HHmmss.SSS'Z'` in UTC: fixed width, sorts by time, no blanks or colons.
  static func time(_ nanoseconds: Int64) -> FileName {
    let calendar = CalendarTime(nanoseconds)
    func digits(_ value: Int, _ width: Int) -> String {
      let text = String(value)
      return String(repeating: "0", count: max(0, width - text.count)) + text
    }
    let date = digits(calendar.year, 4) + digits(calendar.month, 2) + digits(calendar.day, 2)
    let time = digits(calendar.hour, 2) + digits(calendar.minute, 2) + digits(calendar.second, 2)
    return FileName("\(date)T\(time).\(digits(calendar.millisecond, 3))Z")!
  }

  static func isControl(_ byte: UInt8) -> Bool { byte < 0x20 || byte == 0x7f }

  /// A name with a number appended, for a file whose name would otherwise collide with another one
  /// after the replacement of control characters.
  static func numbered(_ name: [UInt8], _ number: Int) -> [UInt8] {
    let suffix = Array("-\(number)".utf8)
    var kept = name.prefix(FileName.byteCountMax - suffix.count)
    // Do not cut inside a UTF-8 character.
    while kept.count < name.count, name[kept.count] & 0xc0 == 0x80 { kept = kept.dropLast() }
    return kept + suffix
  }
}

extension InboxName {
  /// The time after which a message's directory is named; nil for any other name.
  static func date(_ name: FileName) -> Int64? {
    let digits = name.bytes.filter { UInt8(ascii: "0") <= $0 && $0 <= UInt8(ascii: "9") }
    guard digits.count == 17 else { return nil }
    func number(_ range: Range<Int>) -> Int64 { digits[range].reduce(0) { $0 * 10 + Int64($1 - 48) } }
    let (year, month, day) = (number(0..<4), number(4..<6), number(6..<8))
    // Days since 1970-01-01, with years that begin in March.
    let marchYear = month > 2 ? year : year - 1
    let dayOfYear = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1
    let days = 365 * marchYear + marchYear / 4 - marchYear / 100 + marchYear / 400 + dayOfYear - 719_468
    let seconds = ((days * 24 + number(8..<10)) * 60 + number(10..<12)) * 60 + number(12..<14)
    let (nanoseconds, overflows) = seconds.multipliedReportingOverflow(by: 1_000_000_000)
    guard !overflows else { return nil }
    let (date, overflowsToo) = nanoseconds.addingReportingOverflow(number(14..<17) * 1_000_000)
    // A name that is not exactly of this form differs from the name of the computed time.
    return !overflowsToo && time(date) == name ? date : nil
  }
}
