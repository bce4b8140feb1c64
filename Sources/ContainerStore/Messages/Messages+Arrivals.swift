import EncryptedFile

extension Messages {
  func beginArrival(
    _ message: ArrivingMessage, replacing: Bool, stagingInterval: UInt64
  ) throws -> Arrival {
    try message.check()
    let key = ArrivalKey(sender: try InboxName.sender(message.sender), id: message.id)
    guard store.mode == .readWrite else { throw ContainerError(.readOnly) }
    guard arrivals.begin(key) else { throw ArrivalUnderWay() }
    do {
      let known = try store.withSnapshot { try $0.senderRecord(key.sender) }
      if let known, known.deliveryCount >= SenderRecord.deliveryCountMax { throw ArrivalLimit.deliveries }
      guard message.fileCount > 0 else {
        return Arrival(
          self, key, message, nil, staged: [], stagedByteCount: 0, stagingInterval: stagingInterval)
      }
      let record = Staging.Record(
        key: key, number: message.number, fileCount: message.fileCount, byteCount: message.byteCount)
      return try store.namingPath(store.place) {
        let staging = try store.transaction(durability: ContainerDurability.none) { transaction in
          try transaction.staging(for: record, replacing: replacing, isUnderWay: arrivals.contains)
        }
        let staged = try stagedFiles(of: staging)
        return Arrival(
          self, key, message, staging, staged: staged.files, stagedByteCount: staged.byteCount,
          stagingInterval: stagingInterval)
      }
    } catch {
      arrivals.end(key)
      throw error
    }
  }

  func discardArrival(_ message: ArrivingMessage) throws {
    let key = ArrivalKey(sender: try InboxName.sender(message.sender), id: message.id)
    guard arrivals.begin(key) else { return }
    defer { arrivals.end(key) }
    // Most that is refused was never begun.
    guard try store.withSnapshot({ try $0.isStaged(key) }) else { return }
    try store.namingPath(store.place) {
      try store.transaction(durability: store.options.durability == .none ? nil : .full) { transaction in
        for (staging, record) in try transaction.staged(of: key.sender) where record?.key == key {
          try transaction.dropStaging(staging)
        }
      }
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

  /// The staged files in the order of their indexes, and the bytes of all their segments.
  private func stagedFiles(of staging: Staging) throws -> (files: [Arrival.StagedFile], byteCount: UInt64) {
    try store.withSnapshot { records in
      let entries = try records.entries(staging.directory).filter { $0.entry.kind == .file }
      let inodes = try records.inodes(entries.map(\.entry.file))
      let byteCount = try zip(entries, inodes).reduce(UInt64(0)) { sum, file in
        try records.extents(file.0.entry.file, file.1).reduce(sum) { $0 + UInt64($1.storedByteCount) }
      }
      let files = zip(entries, inodes).compactMap { entry, inode in
        Staging.index(entry.name).map { index in
          Arrival.StagedFile(
            index: index, identity: NewFile(id: entry.entry.file, secret: inode.secret), byteCount: inode.size
          )
        }
      }
      return (files.sorted { $0.index < $1.index }, byteCount)
    }
  }
}

extension Transaction {
  /// The existing staging of a message, or a new one.
  fileprivate func staging(
    for record: Staging.Record, replacing: Bool, isUnderWay: (ArrivalKey) -> Bool
  ) throws -> Staging {
    for (staging, found) in try staged(of: record.key.sender) {
      if found == record { return staging }
      guard found?.key == record.key else { continue }
      guard replacing else {
        throw ContainerError(
          .invalidArgument, detail: "something else is staged under this id: discard that first")
      }
      try dropStaging(staging)
    }
    try makeRoom(for: record.key.sender, isUnderWay)
    return try makeStaging(record)
  }

  /// Lets go of stagings that nothing is received into, the oldest first: of this sender when it has as many as
  /// one may have, and else of the one that has most. Such a message begins anew when it is offered again.
  /// Throws ``ArrivalLimit/messages`` when something is received into all of them.
  private func makeRoom(for sender: FileName, _ isUnderWay: (ArrivalKey) -> Bool) throws {
    guard let root = try directoryIfThere(Staging.root) else { return }
    let counts = try entries(root).map { (sender: $0.name, count: try entries($0.entry.file).count) }
    let own = counts.first { $0.sender == sender }?.count ?? 0
    let candidates: [FileName]
    if own >= Staging.countMax {
      candidates = [sender]
    } else if counts.reduce(0, { $0 + $1.count }) >= Staging.allCountMax {
      candidates = counts.sorted { $0.count > $1.count }.map(\.sender)
    } else {
      return
    }
    for sender in candidates {
      let stagings = try staged(of: sender).sorted { $0.staging.time < $1.staging.time }
      guard let oldest = stagings.first(where: { !($0.record.map { isUnderWay($0.key) } ?? false) }) else {
        continue
      }
      return try dropStaging(oldest.staging)
    }
    throw ArrivalLimit.messages
  }
}
