import EncryptedFile

/// The changes of one commit, gathered from its records.
struct FinishedCommit {
  var number: UInt64
  var changes: [CatalogChange]
  var segmentsWereDurable: Bool

  func fileExtents() -> [(file: UInt64, extent: Extent)] {
    changes.compactMap { change in
      guard let value = change.value else { return nil }
      switch change.key.kind {
      case .inode:
        guard let file = change.key.number(at: 1), let inode = try? Inode(value) else { return nil }
        return inode.firstExtent.map { (file, $0) }
      case .extent:
        guard let file = change.key.number(at: 1), let extent = try? Extent(key: change.key, value: value)
        else { return nil }
        return (file, extent)
      default: return nil
      }
    }
  }

  /// The extents of versions that the commit pins.
  func pinnedExtents() -> [(pin: PinnedFile, extents: [Extent])] {
    var found: [(pin: PinnedFile, extents: [Extent])] = []
    var position: [Pin: Int] = [:]
    // Changes are in the order of their keys, so those of type `71` come before those of type `72`.
    for change in changes {
      guard let value = change.value, let pin = change.key.pin(at: 1) else { continue }
      switch change.key.kind {
      case .pinned:
        guard let file = try? PinnedFile(value) else { continue }
        position[pin] = found.count
        found.append((file, file.inode.firstExtent.map { [$0] } ?? []))
      case .pinnedExtent:
        guard let index = position[pin], let extent = try? Extent(pinnedKey: change.key, value: value) else {
          continue
        }
        found[index].extents.append(extent)
      default: continue
      }
    }
    return found
  }

  func extents() -> [Extent] { fileExtents().map(\.extent) + pinnedExtents().flatMap(\.extents) }
}

struct PendingCommit {
  private var number: UInt64 = 0
  private var changes: [CatalogChange] = []
  private(set) var isEmpty = true

  /// Adds a record. Returns the whole commit when the record was its last one.
  mutating func add(_ record: JournalRecord, after last: UInt64) throws -> FinishedCommit? {
    guard record.commit == last + 1, isEmpty || record.commit == number else {
      throw ContainerError(.journalDamaged, detail: "commit \(record.commit) follows commit \(last)")
    }
    isEmpty = false
    number = record.commit
    changes += record.changes
    guard record.isLastOfCommit else { return nil }
    defer {
      changes = []
      isEmpty = true
    }
    return FinishedCommit(number: number, changes: changes, segmentsWereDurable: record.segmentsWereDurable)
  }
}
