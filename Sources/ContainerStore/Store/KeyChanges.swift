import SodiumPrimitives

/// Changes of a container's keys, each in one update of the superblock.
struct KeyChanges {
  let store: Store

  /// See ``Container/addKey(_:)``.
  func add(_ credential: borrowing Credential) throws {
    try change { try $0.keySlots($0.slot.keySlots, adding: credential, store.options) }
  }

  /// See ``Container/replaceKey(_:with:)``.
  func replace(_ old: borrowing Credential, with new: borrowing Credential) throws {
    try change { try $0.keySlots(replacing: old, with: new, store.options) }
  }

  /// See ``Container/removeKey(_:)``.
  func remove(_ credential: borrowing Credential) throws -> Int {
    var removedCount = 0
    try change { superblock in
      let (slots, count) = try superblock.keySlots(removing: credential, store.options)
      removedCount = count
      return count > 0 ? slots : nil
    }
    return removedCount
  }

  /// Writes the key slots that `slots` returns; nil leaves them as they are.
  private func change(_ slots: (borrowing SuperblockFile) throws -> [KeySlot?]?) throws {
    guard store.mode == .readWrite else { throw ContainerError(.readOnly) }
    try store.reportingIO {
      try store.commitLog.withLock { log in
        if log.isClosed { throw store.closed }
        try store.requireNoFailure()
        guard let slots = try slots(log.superblock) else { return }
        try store.failing(&log) { try $0.superblock.replaceKeySlots(slots) }
      }
    }
  }
}
