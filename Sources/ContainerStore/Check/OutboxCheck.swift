import EncryptedFile

/// Checks that the outbox's records are consistent with each other and with those of the files.
struct OutboxCheck {
  private let records: CatalogSnapshot
  private(set) var findings: [Finding] = []

  init(_ records: CatalogSnapshot) { self.records = records }

  private mutating func report(_ detail: String) { findings.addInconsistency(detail) }

  /// Calls `body` for every pinned version, with those of its runs that neither the file nor an
  /// earlier pin has.
  mutating func check(_ body: (PinnedFile, [Extent]) throws -> Void) throws {
    let pinCount = try checkMessages()
    guard try checkPins(body) == pinCount else {
      return report("attachments in the outbox, and the pins of files, do not agree")
    }
  }

  /// Returns the number of attachments.
  private mutating func checkMessages() throws -> Int {
    struct Counted {
      var entry: OutboxEntry
      var fileCount: UInt64 = 0
      var byteCount: UInt64 = 0
      var storedByteCount: UInt64 = 0
      var chunkCount: UInt32 = 0
      var messageByteCount = 0
    }
    var entries: [UInt64: Counted] = [:]
    var problems: [String] = []
    try records.scan(.all(.outbox)) { key, value in
      guard let entry = try? OutboxEntry(key: key, value: value) else {
        problems.append("a message in the outbox that cannot be")
        return
      }
      entries[entry.number] = Counted(entry: entry)
    }
    var pinCount = 0
    try records.scan(.all(.pinned)) { key, value in
      guard key.bytes.count == 13, let pin = key.pin(at: 1), let pinned = try? PinnedFile(value),
        entries[pin.number]?.fileCount == UInt64(pin.attachment)
      else {
        problems.append("an attachment in the outbox that cannot be")
        return
      }
      pinCount += 1
      entries[pin.number]!.fileCount += 1
      entries[pin.number]!.byteCount &+= pinned.inode.size
      entries[pin.number]!.storedByteCount &+= UInt64(pinned.inode.firstExtent?.storedByteCount ?? 0)
    }
    var owner: Pin?
    try records.scan(.all(.pinnedExtent)) { key, value in
      guard key.bytes.count == 21, let pin = key.pin(at: 1),
        let extent = try? Extent(pinnedKey: key, value: value)
      else {
        problems.append("an extent in the outbox that cannot be")
        return
      }
      if owner != pin, try records.value(.pinned(pin)) == nil {
        problems.append("an extent in the outbox that no attachment leads to")
      }
      owner = pin
      entries[pin.number]?.storedByteCount &+= UInt64(extent.storedByteCount)
    }
    try records.scan(.all(.outboxMessage)) { key, value in
      // All chunks but the last are full.
      guard key.bytes.count == 13, let chunk = key.pin(at: 1), !value.isEmpty,
        let message = entries[chunk.number], message.chunkCount == chunk.attachment,
        message.messageByteCount == Int(chunk.attachment) * Messages.outboxChunkByteCount
      else {
        problems.append("a part of a message in the outbox that cannot be")
        return
      }
      entries[chunk.number]!.chunkCount += 1
      entries[chunk.number]!.messageByteCount += value.count
    }
    for (number, message) in entries {
      let entry = message.entry
      if entry.fileCount != message.fileCount || entry.byteCount != message.byteCount {
        problems.append(
          "message \(number) in the outbox has \(message.fileCount) files and counts \(entry.fileCount)")
      }
      if entry.storedByteCount != message.storedByteCount {
        problems.append(
          "message \(number) in the outbox has \(message.storedByteCount) stored bytes and counts "
            + "\(entry.storedByteCount)")
      }
      if message.messageByteCount > OutgoingMessage.byteCountMax {
        problems.append("message \(number) in the outbox has \(message.messageByteCount) bytes")
      }
    }
    problems += try stateProblems(
      last: entries.keys.max(), receivers: Set(entries.values.map(\.entry.receiver)))
    for problem in problems { report(problem) }
    return pinCount
  }

  private func stateProblems(last: UInt64?, receivers: Set<String>) throws -> [String] {
    var problems: [String] = []
    var state: OutboxState?
    try records.scan(.all(.outboxState)) { key, value in
      guard key == .outboxState, let read = try? OutboxState(value) else {
        problems.append("a state of the outbox that cannot be")
        return
      }
      state = read
    }
    var unknown = receivers
    try records.scan(.all(.outboxReceiver)) { key, value in
      let text = String(validating: key.bytes.dropFirst(), as: UTF8.self)
      guard let read = try? OutboxReceiver(value), let text,
        (1...OutgoingMessage.receiverByteCountMax).contains(text.utf8.count)
      else {
        problems.append("a receiver of the outbox that cannot be")
        return
      }
      unknown.remove(text)
      if max(read.delivered, read.firstNumber - 1) >= state?.nextNumber ?? 1 {
        problems.append("a receiver of the outbox knows a number that was never drawn")
      }
    }
    problems += unknown.map { "nothing is known of a receiver of a message in the outbox: \($0)" }
    if let last, state.map({ $0.nextNumber <= last }) ?? problems.isEmpty {
      problems.append("the next number of the outbox is in use")
    }
    return problems
  }

  /// Returns the number of pins.
  private mutating func checkPins(_ body: (PinnedFile, [Extent]) throws -> Void) throws -> Int {
    var count = 0
    var cursor = try records.cursor(from: .all(.pinOfFile))
    var owner: (file: UInt64, inode: Inode?, known: [ExtentMap])?
    while let (key, value) = try cursor.nextLive(), key.kind == .pinOfFile {
      guard value.isEmpty, key.bytes.count == 21, let file = key.number(at: 1), let pin = key.pin(at: 9),
        let bytes = try records.value(.pinned(pin)), let pinned = try? PinnedFile(bytes), pinned.file == file
      else {
        report("a pin of a file that no attachment leads to")
        continue
      }
      count += 1
      if owner?.file != file { owner = try self.owner(file) }
      if let inode = owner!.inode, inode.secret != pinned.inode.secret || inode.epoch != pinned.inode.epoch {
        report("file \(file) and a version of it in the outbox have different keys")
      }
      guard let extents = checked(try? records.extents(of: pinned, pin), size: pinned.inode.size) else {
        report("a version of file \(file) in the outbox has extents that cannot be")
        continue
      }
      try body(pinned, owner!.known.reduce(extents) { $1.parted($0).unknown })
      owner!.known.append(ExtentMap(checked: extents))
    }
    return count
  }

  private func owner(_ file: UInt64) throws -> (UInt64, Inode?, [ExtentMap]) {
    // Problems of the file itself are reported by the check of files.
    guard let inode = try records.value(.inode(file)).flatMap({ try? Inode($0) }) else {
      return (file, nil, [])
    }
    let extents = checked(try? records.extents(file, inode), size: inode.size)
    return (file, inode, extents.map { [ExtentMap(checked: $0)] } ?? [])
  }

  private func checked(_ extents: [Extent]?, size: UInt64) -> [Extent]? {
    try? extents.map { try EncryptedFileReader.checked($0, size: size) }
  }
}
