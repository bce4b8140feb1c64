package import SodiumPrimitives

/// A message that has arrived and was not completely handled yet, or not answered.
package struct QueuedMessage: Sendable {
  /// The message's number in the queue: ascending, never reused.
  package var arrival: UInt64
  /// When it arrived, in nanoseconds since 1970.
  package var time: Int64
  package var id: Identifier
  /// Application id.
  package var sender: String
  /// The encoded message as offered.
  package var message: [UInt8]
  /// The message's directory in the inbox; nil for a message without files.
  package var directory: String?
  /// Files in the order of the offer; sizes in bytes.
  package var files: [(path: String, size: UInt64)]
}

/// A message whose handler has returned, and to which the app may still reply.
package struct AnswerableMessage: Sendable, Equatable {
  package var arrival: UInt64
  package var id: Identifier
  /// Application id.
  package var sender: String
}

/// What is in the queue, oldest first.
package struct MessageQueue: Sendable {
  /// The messages that wait for their handlers.
  package var unhandled: [QueuedMessage] = []
  /// Those whose handlers have returned and which were not ended.
  package var answerable: [AnswerableMessage] = []
  /// The numbers and senders of replies that wait for somebody to claim them, and the bytes of the messages.
  package var unclaimed: [(arrival: UInt64, sender: String, byteCount: Int)] = []
}

extension CatalogKey {
  static func queued(_ arrival: UInt64) -> CatalogKey {
    CatalogKey(bytes: [Kind.queued.rawValue] + bigEndian(arrival))
  }
  static func queuedMessages(_ arrival: UInt64) -> CatalogKey {
    CatalogKey(bytes: [Kind.queuedMessage.rawValue] + bigEndian(arrival))
  }
  static func queuedMessage(_ arrival: UInt64, chunk: UInt32) -> CatalogKey {
    CatalogKey(bytes: queuedMessages(arrival).bytes + bigEndian(chunk))
  }
}

extension Transaction {
  static let queuedChunkByteCountMax = 32_768

  /// Appends a message to the queue and returns its number. `files` are paths relative to the
  /// message's directory, and sizes.
  func queue(
    _ id: Identifier, from sender: String, _ message: [UInt8], state: QueuedRecord.State = .handler,
    directory: String = "", fileCount: UInt64 = 0,
    files: some Sequence<(place: [UInt8], size: UInt64)> = EmptyCollection()
  ) -> UInt64 {
    // File ids ascend over all openings, and no file gets this one.
    let arrival = takeFileID()
    let record = QueuedRecord(
      time: now, id: id, messageByteCount: UInt32(message.count), state: state,
      fileCount: fileCount, sender: Array(sender.utf8), directory: Array(directory.utf8))
    put(.queued(arrival), record.encoded)
    var chunk: UInt32 = 0
    var writer = ByteWriter()
    func writeChunk() {
      put(.queuedMessage(arrival, chunk: chunk), writer.bytes)
      chunk += 1
      writer = ByteWriter()
    }
    func append(_ bytes: [UInt8]) {
      var rest = bytes[...]
      while !rest.isEmpty {
        let taken = rest.prefix(Self.queuedChunkByteCountMax - writer.bytes.count)
        writer.append(taken)
        rest = rest.dropFirst(taken.count)
        if writer.bytes.count == Self.queuedChunkByteCountMax { writeChunk() }
      }
    }
    append(message)
    for file in files { append(QueuedContents.File(place: file.place, size: file.size).encoded) }
    if !writer.bytes.isEmpty { writeChunk() }
    return arrival
  }

  /// Notes what a message waits for in place of its handler. Does nothing if the message is not in the queue.
  func keepQueued(_ arrival: UInt64, for state: QueuedRecord.State) throws {
    guard let value = try value(.queued(arrival)) else { return }
    var record = try Self.decode(value) { bytes throws(MalformedBytes) in try QueuedRecord(bytes) }
    guard record.state == .handler else { return }
    record.state = state
    put(.queued(arrival), record.encoded)
  }

  /// Removes a message from the queue. Does nothing if it is not there.
  func endQueued(_ arrival: UInt64) throws {
    guard try value(.queued(arrival)) != nil else { return }
    for (key, _) in try records(.queuedMessages(arrival)) { delete(key) }
    delete(.queued(arrival))
  }
}

extension CatalogReading {
  /// Decodes a queued message. Throws `catalogDamaged` if its records contradict the format or each
  /// other.
  func queuedMessage(_ arrival: UInt64, _ value: [UInt8]) throws -> QueuedMessage {
    let record = try Self.decode(value) { bytes throws(MalformedBytes) in try QueuedRecord(bytes) }
    var bytes: [UInt8] = []
    var chunk: UInt32 = 0
    try scan(.queuedMessages(arrival)) { key, value in
      // All chunks but the last are full.
      guard key == .queuedMessage(arrival, chunk: chunk), !value.isEmpty,
        bytes.count == Int(chunk) * Transaction.queuedChunkByteCountMax
      else { throw ContainerError(.catalogDamaged, detail: "parts of the message are missing or too many") }
      bytes += value
      chunk += 1
    }
    let contents = try Self.decode(bytes) { bytes throws(MalformedBytes) in
      try QueuedContents(bytes, of: record)
    }
    let directory = String(decoding: record.directory, as: UTF8.self)
    return QueuedMessage(
      arrival: arrival, time: record.time, id: record.id,
      sender: String(decoding: record.sender, as: UTF8.self),
      message: contents.message, directory: record.directory.isEmpty ? nil : directory,
      files: contents.files.map { (directory + "/" + String(decoding: $0.place, as: UTF8.self), $0.size) })
  }
}

extension CatalogKey {
  /// The number of a queued message from the key of a record `78`; nil for a malformed key.
  var arrival: UInt64? { kind == .queued && bytes.count == 9 ? number(at: 1) : nil }
}

extension Messages {
  func messageQueue(skipping: ((ContainerError) -> Void)? = nil) throws -> MessageQueue {
    try store.withSnapshot { records in
      var queue = MessageQueue()
      for (key, value) in try records.records(.all(.queued)) {
        let which = key.arrival.map { "message \($0)" } ?? "a message without a number"
        try skippingDamage("\(which) in the queue", skipping) {
          guard let arrival = key.arrival else {
            throw ContainerError(.catalogDamaged, detail: "the number is missing")
          }
          let record = try CatalogSnapshot.decode(value) { bytes throws(MalformedBytes) in
            try QueuedRecord(bytes)
          }
          switch record.state {
          case .handler: queue.unhandled.append(try records.queuedMessage(arrival, value))
          case .reply:
            queue.answerable.append(
              AnswerableMessage(
                arrival: arrival, id: record.id, sender: String(decoding: record.sender, as: UTF8.self)))
          case .claim, .claimAgain:
            queue.unclaimed.append(
              (arrival, String(decoding: record.sender, as: UTF8.self), Int(record.messageByteCount)))
          }
        }
      }
      return queue
    }
  }

  func queuedMessage(_ arrival: UInt64) throws -> QueuedMessage? {
    try store.withSnapshot { records in
      try records.value(.queued(arrival)).map { try records.queuedMessage(arrival, $0) }
    }
  }

  func claimMessage(
    after last: UInt64, skipping: (ContainerError) -> Void
  ) throws -> (queued: QueuedMessage, wasGiven: Bool)? {
    try store.transaction(durability: store.soon) { transaction in
      var cursor = try transaction.cursor(from: .queued(last + 1))
      while let (key, value) = try cursor.nextLive(), let arrival = key.arrival {
        guard var record = try? QueuedRecord(value), record.state.isClaim else { continue }
        do {
          let queued = try transaction.queuedMessage(arrival, value)
          let wasGiven = record.state == .claimAgain
          record.state = .handler
          transaction.put(.queued(arrival), record.encoded)
          return (queued, wasGiven)
        } catch let error as ContainerError where error.isDamage {
          skipping(error)
        }
      }
      return nil
    }
  }

  func enqueueForReply(
    _ id: Identifier, from sender: String, _ message: [UInt8], isHandled: Bool
  ) throws -> UInt64 {
    guard message.count <= ArrivingMessage.byteCountMax else {
      throw ContainerError(
        .invalidArgument,
        detail: "a message of \(message.count) bytes; it may have \(ArrivingMessage.byteCountMax)")
    }
    _ = try InboxName.sender(sender)
    return try store.transaction(durability: store.acknowledged) {
      $0.queue(id, from: sender, message, state: isHandled ? .reply : .handler)
    }
  }

  func keepQueued(_ arrival: UInt64, for state: QueuedRecord.State) throws {
    try store.transaction(durability: store.soon) { try $0.keepQueued(arrival, for: state) }
  }

  func endUnclaimed(olderThan time: Int64) throws {
    try store.transaction(durability: store.soon) { transaction in
      for (key, value) in try transaction.records(.all(.queued)) {
        guard let arrival = key.arrival, let record = try? QueuedRecord(value), record.state.isClaim,
          record.time < time
        else { continue }
        try transaction.endQueued(arrival)
      }
    }
  }

  func endQueued(_ arrival: UInt64) throws {
    try store.transaction(durability: store.soon) { try $0.endQueued(arrival) }
  }
}

/// Returns the result of `body`. If the records of `name` are damaged, passes the error to
/// `skipping` and returns nil, or throws the error if `skipping` is nil.
@discardableResult
package func skippingDamage<R>(
  _ name: String, _ skipping: ((ContainerError) -> Void)?, _ body: () throws -> R
) throws -> R? {
  do {
    return try body()
  } catch {
    let found = (error as? IOFailure).map(ContainerError.from) ?? error as? ContainerError
    guard let error = found, error.isDamage else { throw error }
    let named = ContainerError(
      error.code, path: error.path, detail: [name, error.detail].compactMap { $0 }.joined(separator: ": "),
      cause: error.cause)
    guard let skipping else { throw named }
    skipping(named)
    return nil
  }
}
