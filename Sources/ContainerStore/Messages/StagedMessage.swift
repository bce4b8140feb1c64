import EncryptedFile

/// A message that has begun to arrive, as far as it is in the container.
package struct StagedMessage: Sendable {
  /// Application id.
  package var sender: String
  /// The directory of its files.
  package var directory: String
  /// Bytes of the segments of its files.
  package var storedByteCount: UInt64
  /// When something came last: nanoseconds since 1970-01-01 UTC.
  package var changed: Int64
  /// Something is received into it.
  package var isUnderWay: Bool
}

extension Messages {
  func stagedMessages() throws -> [StagedMessage] {
    try store.withSnapshot { records in
      guard let root = try records.directoryIfThere(Staging.root) else { return [] }
      return try records.entries(root).flatMap { sender, _ in
        try records.staged(of: sender).map { staging, record in
          StagedMessage(
            sender: sender.description, directory: staging.path,
            storedByteCount: try records.storedByteCount(below: staging.directory),
            changed: try records.lastChange(of: staging),
            isUnderWay: record.map { arrivals.contains($0.key) } ?? false)
        }
      }
    }
  }

  func storedByteCount(of senders: [String]) throws -> UInt64 {
    try store.withSnapshot { records in
      try senders.map(InboxName.sender).reduce(0) { sum, sender in
        try [InboxName.directory(of: sender), Staging.directory(of: sender)]
          .compactMap { try records.directoryIfThere($0) }
          .reduce(sum) { $0 + (try records.storedByteCount(below: $1)) }
      }
    }
  }

  /// Lets go of messages that nothing is received into, until so many bytes are free that were not: of whoever has staged most
  /// the one that has waited longest, and so on.
  func discardIdleArrivals(toFree byteCount: UInt64, of senders: [String]?) throws {
    var staged = try stagedMessages().filter { senders?.contains($0.sender) ?? true }
    var missing = byteCount
    while missing > 0 {
      let sums = Dictionary(grouping: staged, by: \.sender).mapValues {
        $0.reduce(0) { $0 + $1.storedByteCount }
      }
      let idle = staged.indices.filter { !staged[$0].isUnderWay && staged[$0].storedByteCount > 0 }
      guard
        let next = idle.min(by: { a, b in
          let (sumA, sumB) = (sums[staged[a].sender]!, sums[staged[b].sender]!)
          return sumA != sumB ? sumA > sumB : staged[a].changed < staged[b].changed
        })
      else { return }
      let message = staged.remove(at: next)
      try store.transaction(durability: store.soon) { transaction in
        for (staging, record) in try transaction.staged(of: FileName(message.sender)!)
        where staging.path == message.directory {
          if let record, arrivals.contains(record.key) { continue }
          try transaction.dropStaging(staging)
        }
      }
      missing -= min(missing, message.storedByteCount)
    }
  }
}

extension CatalogSnapshot {
  /// Bytes of the segments of all files below a directory that can be read. Memory does not grow with their number, but with that of one directory.
  fileprivate func storedByteCount(below directory: UInt64) throws -> UInt64 {
    var sum: UInt64 = 0
    var open = [directory]
    while let directory = open.popLast() {
      var entries = try entries(directory)[...]
      while !entries.isEmpty {
        let part = entries.prefix(1024)
        entries = entries.dropFirst(1024)
        guard let inodes = try? inodes(part.map(\.entry.file)) else { continue }
        for (entry, inode) in zip(part, inodes) {
          switch entry.entry.kind {
          case .directory: open.append(entry.entry.file)
          case .file:
            sum = try extents(entry.entry.file, inode).reduce(sum) { $0 + UInt64($1.storedByteCount) }
          default: break
          }
        }
      }
    }
    return sum
  }
}
