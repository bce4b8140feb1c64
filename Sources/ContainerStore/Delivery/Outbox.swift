import EncryptedFile
import SodiumPrimitives

/// A message that is to be kept until its receiver has it.
package struct OutgoingMessage: Sendable {
  /// 16 bytes that name it.
  package var id: [UInt8]
  /// The receiver's application id, 1 to 255 bytes.
  package var receiver: String
  /// As it is sent; at most 2 MiB.
  package var message: [UInt8]
  /// Paths of files and folders.
  package var attachments: [String]

  package static let byteCountMax = 2 << 20
  package static let receiverByteCountMax = 255

  package init(id: [UInt8], receiver: String, message: [UInt8], attachments: [String]) {
    self.id = id
    self.receiver = receiver
    self.message = message
    self.attachments = attachments
  }
}

/// A message in the outbox.
package struct OutboxEntry: Sendable, Equatable {
  /// Numbers begin with 1 and are not used again.
  package var number: UInt64
  package var id: [UInt8]
  package var receiver: String
  /// When it was put in: nanoseconds since 1970-01-01 UTC.
  package var time: Int64
  package var fileCount: UInt64
  /// Of the files' contents together.
  package var byteCount: UInt64
  /// The receiver may know of it. False: it was certainly never offered.
  package var mayBeOffered: Bool

  package init(
    number: UInt64, id: [UInt8], receiver: String, time: Int64, fileCount: UInt64, byteCount: UInt64,
    mayBeOffered: Bool
  ) {
    self.number = number
    self.id = id
    self.receiver = receiver
    self.time = time
    self.fileCount = fileCount
    self.byteCount = byteCount
    self.mayBeOffered = mayBeOffered
  }
}

/// A file of a message in the outbox, as it was when the message was put in.
package struct OutboxFile: Sendable {
  /// Absolute in the sender's container, as exact bytes: `/a/b`.
  package var path: [UInt8]
  package var size: UInt64
  /// Nanoseconds since 1970-01-01 UTC.
  package var modified: Int64
  /// POSIX bits.
  package var permissions: UInt16
}

extension Container {
  static let outboxChunkByteCount = CatalogChange.valueByteCountMax

  /// Keeps a message, and every file that its attachments stand for in the version that it has now, in one durable commit. What was
  /// written through open files is in it. Nothing is copied: what changes or goes later stays for the message alone. `endingQueued`
  /// is a request in the queue that is done with this, its reply, in the same commit. With `mayBeOffered` the receiver may hear of it as
  /// soon as this returns; else not before ``markOffered(_:)``.
  ///
  /// Throws `noSuchFile`; `cannotStore` for a symbolic link in a folder or a path of more than 32,000 bytes; `fileDamaged`;
  /// `invalidArgument` for an id that is in the outbox, or is not of 16 bytes, a receiver without a name, and a message of more than
  /// 2 MiB; `diskFull`, `readOnly`.
  package func enqueue(
    _ message: OutgoingMessage, mayBeOffered: Bool = false, endingQueued arrival: UInt64? = nil
  ) throws -> OutboxEntry {
    guard mode == .readWrite else { throw ContainerError(.readOnly) }
    guard message.id.count == Identifier.byteCount,
      (1...OutgoingMessage.receiverByteCountMax).contains(message.receiver.utf8.count),
      message.message.count <= OutgoingMessage.byteCountMax
    else {
      throw ContainerError(
        .invalidArgument,
        detail: "a message has an id of 16 bytes, a receiver of 1 to 255 and at most 2 MiB of its own")
    }
    let failures = try namingPath(io.place) { try writeBack() }
    if core.withLock({ $0.diskIsFull }) { throw ContainerError(.diskFull) }
    let entry = try transaction(durability: options.durability == .none ? nil : .full) { transaction in
      // One that is damaged keeps nobody from sending.
      for entry in try transaction.outboxEntries(skipping: { _ in }) where entry.id == message.id {
        throw ContainerError(.invalidArgument, detail: "a message with this id is in the outbox")
      }
      var state = try transaction.outboxState() ?? OutboxState(incarnation: Random.bytes(16))
      var entry = OutboxEntry(
        number: state.nextNumber, id: message.id, receiver: message.receiver, time: transaction.now,
        fileCount: 0, byteCount: 0, mayBeOffered: mayBeOffered)
      state.nextNumber += 1
      transaction.put(.outboxState, state.encoded)
      for (path, found) in try transaction.attachedFiles(message.attachments) {
        let text = String(decoding: path, as: UTF8.self)
        // What was written to it last could not be stored.
        if let failure = failures[found.id] { throw translated(failure, path: text) }
        let extents = try checkedExtents(of: found, at: text, in: transaction)
        guard let attachment = UInt32(exactly: entry.fileCount) else {
          throw ContainerError(.invalidArgument, detail: "more files than a message can have")
        }
        transaction.pin(
          found, extents: extents, path: path, as: Pin(number: entry.number, attachment: attachment))
        entry.fileCount += 1
        let (sum, overflows) = entry.byteCount.addingReportingOverflow(found.inode.size)
        guard !overflows else {
          throw ContainerError(.invalidArgument, detail: "the files are longer together than can be counted")
        }
        entry.byteCount = sum
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
        transaction.delete(.waitingRequest(arrival))
        for (key, _) in try transaction.records(.waitingRequestMessage(arrival)) { transaction.delete(key) }
      }
      return entry
    }
    // Its number is never given again, not even after a kill.
    if options.durability == .none { try flush(durably: false) }
    return entry
  }

  /// Notes that the receiver may know of a message from now on: durable when this returns, so that no crash makes a message that was
  /// offered one that was not. Throws `noSuchFile` when it is not in the outbox.
  package func markOffered(_ number: UInt64) throws {
    guard mode == .readWrite else { throw ContainerError(.readOnly) }
    try transaction(durability: options.durability == .none ? nil : .full) { transaction in
      var entry = try transaction.outboxEntry(number)
      entry.mayBeOffered = true
      transaction.put(.outbox(number), entry.encoded)
    }
    if options.durability == .none { try flush(durably: false) }
  }

  /// What waits for its receiver, in order of numbers. Messages that are damaged are left out when somebody wants to hear of them; else
  /// it throws `catalogDamaged`.
  package func outboxEntries(skipping: ((ContainerError) -> Void)? = nil) throws -> [OutboxEntry] {
    try withStoredCatalog { try $0.outboxEntries(skipping: skipping) }
  }

  /// The least number of a message for this receiver; nil when there is none. One of which is not known for whom it is counts, too.
  package func outboxFloor(receiver: String) throws -> UInt64? {
    try withStoredCatalog { records in
      for (key, value) in try records.records(.all(.outbox)) {
        guard let entry = try? OutboxEntry(key: key, value: value) else {
          guard key.bytes.count == 9, let number = key.number(at: 1) else { continue }
          return number
        }
        if entry.receiver == receiver { return entry.number }
      }
      return nil
    }
  }

  /// The message's own bytes. Throws `noSuchFile` when it is not in the outbox.
  package func outboxMessage(_ number: UInt64) throws -> [UInt8] {
    try withStoredCatalog { records in
      _ = try records.outboxEntry(number)
      var message: [UInt8] = []
      try records.scan(.outboxMessage(number)) { _, chunk in message += chunk }
      return message
    }
  }

  /// At most `limit` of a message's files, from an index on, in order. Throws `noSuchFile` when it is not in the outbox.
  package func outboxFiles(_ number: UInt64, from index: UInt64, limit: Int) throws -> [OutboxFile] {
    try withStoredCatalog { records in
      _ = try records.outboxEntry(number)
      return try records.pinnedFiles(number, from: index, limit: limit).map { file in
        OutboxFile(
          path: file.path, size: file.inode.size, modified: file.inode.modified,
          permissions: file.inode.permissions)
      }
    }
  }

  /// Removes a message that has arrived, or is not to be sent any more, with its pins, and frees what only these kept. When it is gone
  /// already nothing happens. As durable as the container's other changes, without waiting.
  package func settleOutbox(_ number: UInt64) throws {
    guard mode == .readWrite else { throw ContainerError(.readOnly) }
    guard try withStoredCatalog({ try $0.value(.outbox(number)) }) != nil else { return }
    try transaction { transaction in
      transaction.delete(.outbox(number))
      for (key, _) in try transaction.records(.outboxMessage(number)) { transaction.delete(key) }
      for (key, _) in try transaction.records(.pinned(number)) {
        guard key.bytes.count == 13, let pin = key.pin(at: 1) else {
          throw ContainerError(.catalogDamaged, detail: "an attachment that cannot be")
        }
        try transaction.unpin(pin)
      }
    }
  }

  /// 16 random bytes, drawn when they are first needed: numbers count within them. They are drawn anew when they are `taken`: a receiver
  /// knows other messages under their numbers. Numbers go on, so that none has two meanings.
  package func outboxIncarnation(otherThan taken: [UInt8]? = nil) throws -> [UInt8] {
    if let state = try withStoredCatalog({ try $0.outboxState() }), state.incarnation != taken {
      return state.incarnation
    }
    let incarnation = try transaction(durability: taken == nil || options.durability == .none ? nil : .full) {
      transaction in
      var state = try transaction.outboxState() ?? OutboxState(incarnation: Random.bytes(16))
      if state.incarnation == taken { state.incarnation = Random.bytes(16) }
      transaction.put(.outboxState, state.encoded)
      return state.incarnation
    }
    if options.durability == .none { try flush(durably: false) }
    return incarnation
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

  /// The files and folders that attachments name, and all that is below the folders; links are followed to what is sent.
  func attachedItems(_ attachments: [String]) throws -> [(original: [FileName], found: FoundFile)] {
    var items: [(original: [FileName], found: FoundFile)] = []
    for attachment in attachments {
      // A link is followed to what is sent; its own name says where to.
      let path = try StorePath(attachment).resolved(in: self, followingLast: false)
      let found = try existing(StorePath(attachment))
      if !path.names.isEmpty { items.append((path.names, found)) }
      guard found.inode.kind == .directory else { continue }
      for (names, file) in try subtree(found.id) { items.append((path.names + names, file)) }
    }
    return items
  }

  /// The files among them, each once, with their paths. Throws `cannotStore` for a symbolic link, and for a path that is too long.
  fileprivate func attachedFiles(_ attachments: [String]) throws -> [(path: [UInt8], found: FoundFile)] {
    var seen: Set<[UInt8]> = []
    var files: [(path: [UInt8], found: FoundFile)] = []
    for (original, found) in try attachedItems(attachments) where found.inode.kind != .directory {
      guard found.inode.kind == .file else {
        throw ContainerError(
          .cannotStore, path: StorePath.text(original), detail: "a symbolic link cannot be sent")
      }
      let path = original.flatMap { [UInt8(ascii: "/")] + $0.bytes }
      guard path.count <= PinnedFile.pathByteCountMax, original.count <= InboxPlaces.depthMax else {
        throw ContainerError(
          .cannotStore, path: StorePath.text(original),
          detail: "a path of \(path.count) bytes and \(original.count) names is too long to be sent")
      }
      // Else it was named twice, or as part of a folder too.
      if seen.insert(path).inserted { files.append((path, found)) }
    }
    return files
  }
}
