/// A message in the inbox, as far as its directory tells.
package struct ArrivedMessage: Sendable, Equatable {
  /// `/Inbox/<sender>/<time>`.
  package var directory: String
  /// Application id.
  package var sender: String
  /// When it arrived: nanoseconds since 1970-01-01 UTC, whole milliseconds.
  package var date: Int64
  package var fileCount: Int
  /// Of the files' contents; one with several names counts once for each.
  package var byteCount: UInt64
}

extension Container {
  /// Every directory of a message in the inbox, the oldest first. Other directories that stand there are none.
  package func arrivedMessages() throws -> [ArrivedMessage] {
    try withSnapshot { records in
      guard let inbox = try records.directoryIfThere([InboxName.inbox]) else { return [] }
      var messages: [ArrivedMessage] = []
      for (sender, entry) in try records.entries(inbox) where entry.kind == .directory {
        for (time, entry) in try records.entries(entry.file) where entry.kind == .directory {
          guard let date = InboxName.date(time) else { continue }
          var message = ArrivedMessage(
            directory: StorePath.text(InboxName.directory(of: sender) + [time]), sender: sender.description,
            date: date, fileCount: 0, byteCount: 0)
          for (_, file) in try records.subtree(entry.file) where file.inode.kind != .directory {
            message.fileCount += 1
            let (sum, overflows) = message.byteCount.addingReportingOverflow(file.inode.size)
            message.byteCount = overflows ? .max : sum
          }
          messages.append(message)
        }
      }
      // Of one millisecond in the order of their senders.
      return messages.enumerated().sorted { ($0.element.date, $0.offset) < ($1.element.date, $1.offset) }
        .map(\.element)
    }
  }

  /// Removes the directories of messages with everything in them, in one commit. Fine for one that is gone. Throws `invalidArgument` for
  /// a path that is not that of a message's directory; then nothing is removed.
  package func removeArrivedMessages(_ directories: [String]) throws {
    let places = try directories.map { directory in
      let path = try StorePath(directory)
      let names = path.parts.compactMap { $0 }
      guard names.count == 3, path.parts.count == 3, names[0] == InboxName.inbox,
        InboxName.date(names[2]) != nil
      else {
        throw ContainerError(.invalidArgument, path: directory, detail: "no message's directory in the inbox")
      }
      return names
    }
    try namingPath(io.place) {
      try transaction { transaction in
        for names in places {
          guard let parent = try transaction.directoryIfThere(names.dropLast()),
            let directory = try transaction.directoryIfThere(names)
          else { continue }
          try transaction.dropSubtree(directory, try transaction.subtree(directory))
          try transaction.unlink(parent, names[2])
        }
      }
    }
  }
}

extension InboxName {
  /// The time that a message's directory is named after; nil for another name.
  static func date(_ name: FileName) -> Int64? {
    let digits = name.bytes.filter { UInt8(ascii: "0") <= $0 && $0 <= UInt8(ascii: "9") }
    guard digits.count == 17 else { return nil }
    func number(_ range: Range<Int>) -> Int64 { digits[range].reduce(0) { $0 * 10 + Int64($1 - 48) } }
    let (year, month, day) = (number(0..<4), number(4..<6), number(6..<8))
    // Days since 1970-01-01, in years that begin in March.
    let marchYear = month > 2 ? year : year - 1
    let dayOfYear = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1
    let days = 365 * marchYear + marchYear / 4 - marchYear / 100 + marchYear / 400 + dayOfYear - 719_468
    let seconds = ((days * 24 + number(8..<10)) * 60 + number(10..<12)) * 60 + number(12..<14)
    let (nanoseconds, overflows) = seconds.multipliedReportingOverflow(by: 1_000_000_000)
    guard !overflows else { return nil }
    let (date, overflowsToo) = nanoseconds.addingReportingOverflow(number(14..<17) * 1_000_000)
    // Everything that is not exactly such a name comes out as another one.
    return !overflowsToo && time(date) == name ? date : nil
  }
}
