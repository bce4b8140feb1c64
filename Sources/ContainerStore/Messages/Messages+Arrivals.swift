import EncryptedFile

extension Messages {
  func beginArrival(_ message: ArrivingMessage, replacing: Bool = false) throws -> Arrival {
    try message.check()
    let key = try arrivalKey(message.sender, message.incarnation, message.number)
    guard store.mode == .readWrite else { throw ContainerError(.readOnly) }
    guard arrivals.begin(key) else {
      throw ContainerError(.invalidArgument, detail: "this message is arriving already: suspend that first")
    }
    do {
      guard message.fileCount > 0 else { return Arrival(self, key, message, nil, staged: []) }
      let record = Staging.Record(
        key: key, id: message.id, fileCount: message.fileCount, byteCount: message.byteCount)
      return try store.namingPath(store.place) {
        let staging = try store.transaction(durability: ContainerDurability.none) { transaction in
          try transaction.staging(for: record, replacing: replacing)
        }
        return Arrival(self, key, message, staging, staged: try stagedFiles(of: staging))
      }
    } catch {
      arrivals.end(key)
      throw error
    }
  }

  func discardArrivals(olderThan: Int64?) throws {
    try store.transaction(durability: store.soon) { transaction in
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

  func availableByteCount() throws -> UInt64 {
    if store.diskIsFull { return 0 }
    return try ContainerStatistics(store).freeByteCount
  }

  /// The staged files in the order of their indexes.
  private func stagedFiles(of staging: Staging) throws -> [Arrival.StagedFile] {
    try store.withSnapshot { records in
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
  /// The existing staging of a message, or a new one.
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
