import EncryptedFile

/// The arrivals of one opening that have not ended.
final class ArrivalsUnderWay: Sendable {
  private let keys = Guarded<Set<ArrivalKey>>([])

  /// False when there is one already.
  func begin(_ key: ArrivalKey) -> Bool { keys.withLock { $0.insert(key).inserted } }
  func end(_ key: ArrivalKey) { keys.withLock { _ = $0.remove(key) } }
  func contains(_ key: ArrivalKey) -> Bool { keys.withLock { $0.contains(key) } }
}

extension Container {
  /// Begins to take a message, or goes on with what is left of it from before: of an earlier opening, or of an arrival that was suspended.
  ///
  /// Throws `invalidArgument` when what is left under its number is of a message with another id or other counts, unless `replacing`:
  /// then that is removed; and while another arrival of it is under way. Throws `invalidName` for a sender that is no name.
  package func beginArrival(_ message: ArrivingMessage, replacing: Bool = false) throws -> Arrival {
    try message.check()
    let key = try arrivalKey(message.sender, message.incarnation, message.number)
    guard mode == .readWrite else { throw ContainerError(.readOnly) }
    guard arrivals.begin(key) else {
      throw ContainerError(.invalidArgument, detail: "this message is arriving already: suspend that first")
    }
    do {
      guard message.fileCount > 0 else { return Arrival(self, key, message, nil, staged: []) }
      let record = Staging.Record(
        key: key, id: message.id, fileCount: message.fileCount, byteCount: message.byteCount)
      return try namingPath(io.place) {
        let staging = try transaction(durability: Durability.none) { transaction in
          try transaction.staging(for: record, replacing: replacing)
        }
        return Arrival(self, key, message, staging, staged: try stagedFiles(of: staging))
      }
    } catch {
      arrivals.end(key)
      throw error
    }
  }

  /// Removes what is staged of messages that nobody is receiving: all of it, or what did not change since `olderThan` (nanoseconds since
  /// 1970-01-01 UTC).
  package func discardArrivals(olderThan: Int64?) throws {
    try transaction(durability: soon) { transaction in
      guard let root = try transaction.directoryIfThere(Staging.root) else { return }
      for (sender, _) in try transaction.entries(root) {
        for (staging, record) in try transaction.staged(of: sender) {
          if let record, arrivals.contains(record.key) { continue }
          if let olderThan, try transaction.lastChange(of: staging) >= olderThan { continue }
          try transaction.dropStaging(staging)
        }
      }
    }
  }

  /// Bytes that the file system has room for, without what is held back for a full disk. Throws `ioFailed`.
  package func availableByteCount() throws -> UInt64 {
    if core.withLock({ $0.diskIsFull }) { return 0 }
    return try statistics().freeByteCount
  }

  /// In the order of their numbers.
  private func stagedFiles(of staging: Staging) throws -> [Arrival.StagedFile] {
    try withStoredCatalog { records in
      let entries = try records.entries(staging.directory).filter { $0.entry.kind == .file }
      let inodes = try records.inodes(entries.map(\.entry.file))
      return zip(entries, inodes).compactMap { entry, inode in
        Staging.index(entry.name).map { index in
          Arrival.StagedFile(
            index: index, identity: NewFile(id: entry.entry.file, secret: inode.secret), byteCount: inode.size
          )
        }
      }.sorted { $0.index < $1.index }
    }
  }
}

extension Transaction {
  /// What is there of the message, or a new directory for it.
  fileprivate func staging(for record: Staging.Record, replacing: Bool) throws -> Staging {
    for (staging, found) in try staged(of: record.key.sender) {
      if found == record { return staging }
      guard found?.key == record.key else { continue }
      guard replacing else {
        throw ContainerError(
          .invalidArgument, detail: "something else is staged under this number: discard that first")
      }
      try dropStaging(staging)
    }
    return try makeStaging(record)
  }
}
