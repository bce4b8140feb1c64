import EncryptedFile
package import SodiumPrimitives

/// A message to keep until its receiver has it.
package struct OutgoingMessage: Sendable {
  package var id: Identifier
  /// The receiver's application id, 1 to 255 bytes.
  package var receiver: String
  /// The encoded message as sent, at most 2 MiB.
  package var message: [UInt8]
  /// Paths of files and folders.
  package var attachments: [String]

  package static let byteCountMax = 2 << 20
  package static let receiverByteCountMax = 255

  package init(id: Identifier, receiver: String, message: [UInt8], attachments: [String]) {
    self.id = id
    self.receiver = receiver
    self.message = message
    self.attachments = attachments
  }
}

/// What a receiver says that it has of a container's messages.
package struct DeliveryReceipt: Sendable, Equatable {
  /// That of the offer which it answers.
  package var incarnation: Incarnation
  /// How many messages have arrived under the incarnation; 0 if it does not say.
  package var count: UInt64

  package init(incarnation: Incarnation, count: UInt64) {
    (self.incarnation, self.count) = (incarnation, count)
  }
}

/// A file of a message in the outbox, in the version of the time when the message was queued.
package struct OutboxFile: Sendable {
  /// Absolute path in the sender's container, as exact bytes: `/a/b`.
  package var path: [UInt8]
  package var size: UInt64
  /// Nanoseconds since 1970-01-01 UTC.
  package var modified: Int64
  /// POSIX permission bits.
  package var permissions: UInt16
}

extension Messages {
  static let outboxChunkByteCount = CatalogChange.valueByteCountMax

  /// Throws `readOnly`, and `invalidArgument` for a message that no outbox takes.
  func checkOutgoing(_ message: OutgoingMessage) throws {
    guard store.mode == .readWrite else { throw ContainerError(.readOnly) }
    guard (1...OutgoingMessage.receiverByteCountMax).contains(message.receiver.utf8.count),
      message.message.count <= OutgoingMessage.byteCountMax
    else {
      throw ContainerError(
        .invalidArgument,
        detail: "a message has a receiver of 1 to 255 bytes and at most 2 MiB of its own")
    }
  }

  /// `failures`: for each file whose last bytes could not be stored, the reason.
  func enqueue(
    _ message: OutgoingMessage, mayBeOffered: Bool, endingQueued arrival: UInt64?,
    unstored failures: [UInt64: any Error]
  ) throws -> OutboxEntry {
    if store.diskIsFull { throw ContainerError(.diskFull) }
    let entry = try store.transaction(durability: store.acknowledged) { transaction in
      guard try !outboxIndex.contains(message.id, in: transaction) else {
        throw ContainerError(.invalidArgument, detail: "a message with this id is in the outbox")
      }
      var state = try transaction.outboxState() ?? OutboxState()
      var entry = OutboxEntry(
        number: state.nextNumber, id: message.id, receiver: message.receiver, time: transaction.now,
        fileCount: 0, byteCount: 0, storedByteCount: 0, mayBeOffered: mayBeOffered)
      state.nextNumber += 1
      transaction.put(.outboxState, state.encoded)
      if try transaction.outboxReceiver(message.receiver) == nil,
        let first = Incarnation.random(generation: 1)
      {
        transaction.put(
          .outboxReceiver(message.receiver),
          OutboxReceiver(incarnation: first, firstNumber: entry.number).encoded)
      }
      for (path, found) in try transaction.attachedFiles(message.attachments) {
        let text = String(decoding: path, as: UTF8.self)
        // The last bytes written to the file could not be stored.
        if let failure = failures[found.id] { throw ContainerError.ofFile(at: text, failure) }
        let extents = try transaction.checkedExtents(of: found, at: text)
        guard let attachment = UInt32(exactly: entry.fileCount) else {
          throw ContainerError(.invalidArgument, detail: "more files than a message can have")
        }
        transaction.pin(
          found, extents: extents, path: path, as: Pin(number: entry.number, attachment: attachment))
        entry.fileCount += 1
        let (sum, overflows) = entry.byteCount.addingReportingOverflow(found.inode.size)
        guard !overflows, sum < ArrivingMessage.filesByteCountMax else {
          throw ContainerError(.invalidArgument, detail: "the files are longer together than can be counted")
        }
        entry.byteCount = sum
        entry.storedByteCount = extents.reduce(entry.storedByteCount) { $0 + UInt64($1.storedByteCount) }
      }
      transaction.put(.outbox(entry.number), entry.encoded)
      var chunk: UInt32 = 0
      var rest = message.message[...]
      while !rest.isEmpty {
        let part = rest.prefix(Self.outboxChunkByteCount)
        transaction.put(.outboxMessage(entry.number, chunk: chunk), Array(part))
        rest = rest.dropFirst(part.count)
        chunk += 1
      }
      if let arrival {
        guard try transaction.value(.queued(arrival)) != nil else {
          throw ContainerError(.invalidArgument, detail: "what it answers is not in the queue any more")
        }
        try transaction.endQueued(arrival)
      }
      transaction.whenApplied { [entry] in outboxIndex.add(entry) }
      return entry
    }
    // The number must not be reused, even after the process is killed.
    if store.options.durability == .none { try store.flush(durably: false) }
    return entry
  }

  func markOffered(_ number: UInt64) throws {
    guard store.mode == .readWrite else { throw ContainerError(.readOnly) }
    try store.transaction(durability: store.acknowledged) { transaction in
      var entry = try transaction.outboxEntry(number)
      entry.mayBeOffered = true
      transaction.put(.outbox(number), entry.encoded)
    }
    if store.options.durability == .none { try store.flush(durably: false) }
  }

  func outboxEntries(skipping: ((ContainerError) -> Void)? = nil) throws -> [OutboxEntry] {
    try store.withSnapshot { try $0.outboxEntries(skipping: skipping) }
  }

  func outboxFloor(receiver: String) throws -> UInt64? {
    // No other app is told what is read back after a write that failed.
    try store.requireNoFailure()
    return try store.reportingIO {
      try store.withCurrentState { records, _ in try outboxIndex.floor(of: receiver, in: records) }
    }
  }

  func outboxMessage(_ number: UInt64) throws -> [UInt8] {
    try store.withSnapshot { records in
      _ = try records.outboxEntry(number)
      var message: [UInt8] = []
      try records.scan(.outboxMessage(number)) { _, chunk in message += chunk }
      return message
    }
  }

  func outboxFiles(_ number: UInt64, from index: UInt64, limit: Int) throws -> [OutboxFile] {
    try store.withSnapshot { records in
      _ = try records.outboxEntry(number)
      return try records.pinnedFiles(number, from: index, limit: limit).map { file in
        OutboxFile(
          path: file.path, size: file.inode.size, modified: file.inode.modified,
          permissions: file.inode.permissions)
      }
    }
  }

  func settleOutbox(_ number: UInt64, has receipt: DeliveryReceipt?) throws {
    guard store.mode == .readWrite else { throw ContainerError(.readOnly) }
    guard try store.withSnapshot({ try $0.value(.outbox(number)) }) != nil else { return }
    try store.transaction { transaction in
      if let receipt {
        let receiver = try transaction.outboxEntry(number).receiver
        try transaction.setDelivered(receiver, under: receipt.incarnation) { max($0, receipt.count) }
      }
      transaction.delete(.outbox(number))
      transaction.whenApplied { outboxIndex.remove(number) }
      for (key, _) in try transaction.records(.outboxMessage(number)) { transaction.delete(key) }
      for (key, _) in try transaction.records(.pinned(number)) {
        guard key.bytes.count == 13, let pin = key.pin(at: 1) else {
          throw ContainerError(.catalogDamaged, detail: "an attachment that cannot be")
        }
        try transaction.unpin(pin)
      }
    }
  }
}

extension CatalogReading {
  func outboxState() throws -> OutboxState? {
    try value(.outboxState).map { bytes in
      try Self.decode(bytes) { bytes throws(MalformedBytes) in try OutboxState(bytes) }
    }
  }

  func outboxEntries(skipping: ((ContainerError) -> Void)?) throws -> [OutboxEntry] {
    try records(.all(.outbox)).compactMap { key, value in
      let which = key.number(at: 1).map { "message \($0)" } ?? "a message without a number"
      return try skippingDamage("\(which) in the outbox", skipping) {
        try Self.decode(value) { bytes throws(MalformedBytes) in try OutboxEntry(key: key, value: bytes) }
      }
    }
  }

  func outboxEntry(_ number: UInt64) throws -> OutboxEntry {
    guard let value = try value(.outbox(number)) else {
      throw ContainerError(.noSuchFile, detail: "the message is not in the outbox")
    }
    return try Self.decode(value) { bytes throws(MalformedBytes) in
      try OutboxEntry(key: .outbox(number), value: bytes)
    }
  }

  /// At most `limit` files of a message from an index on.
  func pinnedFiles(_ number: UInt64, from index: UInt64, limit: Int) throws -> [PinnedFile] {
    guard let attachment = UInt32(exactly: index) else { return [] }
    var files: [PinnedFile] = []
    let prefix = CatalogKey.pinned(number)
    var cursor = try cursor(from: .pinned(Pin(number: number, attachment: attachment)))
    while files.count < limit, let (key, value) = try cursor.nextLive(), key.hasPrefix(prefix) {
      files.append(
        try Self.decode(value) { bytes throws(MalformedBytes) in try PinnedFile(bytes) })
    }
    return files
  }

  /// The files and folders that attachments name, and everything below the folders. An attachment
  /// that is a link stands for its target.
  func attachedItems(_ attachments: [String]) throws -> [(original: [FileName], found: FoundFile)] {
    var items: [(original: [FileName], found: FoundFile)] = []
    for attachment in attachments {
      // The contents are those of a link's target; the path is that of the link itself.
      let path = try StorePath(attachment).resolved(in: self, followingLast: false)
      let found = try existing(StorePath(attachment))
      if !path.names.isEmpty { items.append((path.names, found)) }
      guard found.inode.kind == .directory else { continue }
      for (names, file) in try subtree(found.id) { items.append((path.names + names, file)) }
    }
    return items
  }

  /// The attached files, each once, with their paths. Throws `cannotStore` for a symbolic link in a
  /// folder, and for a path that is too long.
  fileprivate func attachedFiles(_ attachments: [String]) throws -> [(path: [UInt8], found: FoundFile)] {
    var seen: Set<[UInt8]> = []
    var files: [(path: [UInt8], found: FoundFile)] = []
    for (original, found) in try attachedItems(attachments) where found.inode.kind != .directory {
      guard found.inode.kind == .file else {
        throw ContainerError(
          .cannotStore, path: StorePath.text(original), detail: "a symbolic link cannot be sent")
      }
      let path = original.flatMap { [UInt8(ascii: "/")] + $0.bytes }
      guard path.count <= PinnedFile.pathByteCountMax, original.count <= FileName.depthMax else {
        throw ContainerError(
          .cannotStore, path: StorePath.text(original),
          detail: "a path of \(path.count) bytes and \(original.count) names is too long to be sent")
      }
      // Otherwise the file was named twice, or is part of a named folder.
      if seen.insert(path).inserted { files.append((path, found)) }
    }
    return files
  }
}
