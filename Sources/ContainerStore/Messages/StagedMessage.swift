import EncryptedFile
import SodiumPrimitives

/// A message that has begun to arrive, as far as it is in the container.
package struct StagedMessage: Sendable {
  let staging: Staging
  /// Nil when its record is damaged.
  let key: ArrivalKey?
  /// Bytes of the segments of its files.
  package let storedByteCount: UInt64
  /// When something came last: nanoseconds since 1970-01-01 UTC.
  package let changed: Int64
  /// Something is received into it.
  package let isUnderWay: Bool

  /// Application id.
  package var sender: String { staging.sender.description }
}

extension Messages {
  /// Of the named apps, or of all.
  func stagedMessages(of senders: [String]?) throws -> [StagedMessage] {
    try store.withSnapshot { records in
      guard let root = try records.directoryIfThere(Staging.root) else { return [] }
      return try records.entries(root)
        .filter { senders?.contains($0.name.description) ?? true }
        .flatMap { try records.staged(of: $0.name) }
        .map { staging, record in
          StagedMessage(
            staging: staging, key: record?.key,
            storedByteCount: try records.storedByteCount(below: staging.directory),
            changed: try records.lastChange(of: staging),
            isUnderWay: record.map { arrivals.contains($0.key) } ?? false)
        }
    }
  }

  func storedByteCount(of senders: [String]) throws -> UInt64 {
    try store.withSnapshot { records in
      try senders.map(InboxName.sender).reduce(0) { sum, sender in
        try [InboxName.directory(of: sender), Staging.directory(of: sender)]
          .compactMap { try records.directoryIfThere($0) }
          .reduce(sum) { $0 + (try records.storedByteCount(below: $1, recordByteCount: 512)) }
      }
    }
  }

  /// Lets go of messages that nothing is received into, until so many bytes are free that were not: of whoever has staged most
  /// the one that has waited longest, and so on. Of none when all of them have fewer.
  func discardIdleArrivals(toFree byteCount: UInt64, of senders: [String]?, keeping id: Identifier?) throws {
    var staged = try stagedMessages(of: senders)
    func isIdle(_ message: StagedMessage) -> Bool {
      !message.isUnderWay && message.storedByteCount > 0 && (id == nil || message.key?.id != id)
    }
    guard byteCount <= staged.filter(isIdle).reduce(0, { $0 + $1.storedByteCount }) else { return }
    var missing = byteCount
    while missing > 0 {
      let sums = Dictionary(grouping: staged, by: \.sender)
        .mapValues { $0.reduce(0) { $0 + $1.storedByteCount } }
      let idle = staged.indices.filter { isIdle(staged[$0]) }
      guard
        let next = idle.min(by: { a, b in
          let (sumA, sumB) = (sums[staged[a].sender]!, sums[staged[b].sender]!)
          return sumA != sumB ? sumA > sumB : staged[a].changed < staged[b].changed
        })
      else { return }
      let message = staged.remove(at: next)
      try store.transaction(durability: store.soon) { transaction in
        // Something may have begun to come meanwhile.
        if message.key.map(arrivals.contains) != true { try transaction.dropStaging(message.staging) }
      }
      missing -= min(missing, message.storedByteCount)
    }
  }
}

extension CatalogSnapshot {
  /// Bytes of the segments of all files below a directory that can be read. Memory does not grow with their number, but with that of one
  /// directory. Each item counts with its records.
  fileprivate func storedByteCount(below directory: UInt64, recordByteCount: UInt64 = 0) throws -> UInt64 {
    var sum: UInt64 = 0
    var open = [directory]
    var seen: Set<UInt64> = [directory]
    while let directory = open.popLast() {
      guard var entries = try whereRead({ try self.entries(directory)[...] }) else { continue }
      while !entries.isEmpty {
        let part = entries.prefix(1024)
        entries = entries.dropFirst(1024)
        sum += recordByteCount * UInt64(part.count)
        for (_, entry) in part where entry.kind == .directory && seen.insert(entry.file).inserted {
          open.append(entry.file)
        }
        guard let inodes = try whereRead({ try self.inodes(part.map(\.entry.file)) }) else { continue }
        for (entry, inode) in zip(part, inodes) where entry.entry.kind == .file {
          let extents = try whereRead { try self.extents(entry.entry.file, inode) } ?? []
          sum = extents.reduce(sum) { $0 + UInt64($1.storedByteCount) }
        }
      }
    }
    return sum
  }

  /// Nil for what is damaged.
  private func whereRead<R>(_ body: () throws -> R) throws -> R? {
    do { return try body() } catch let error as ContainerError where error.isDamage { return nil }
  }
}
