import SodiumPrimitives

/// Changes of a container's keys, each in one update of the superblock.
struct KeyChanges {
  let store: Store

  /// See ``Container/addKey(_:label:)``.
  func add(_ credential: borrowing Credential, label: String?) throws {
    let label = try KeyTable.bytes(label)
    try change { try $0.add(credential, label: label, rootKey: $1, store.options) }
  }

  /// See ``Container/replaceKey(_:with:)``.
  func replace(
    _ old: borrowing Credential, with new: borrowing Credential
  ) throws -> (removed: [Identifier], added: Identifier) {
    var ids: (removed: [Identifier], added: Identifier)?
    try change { ids = try $0.replace(old, with: new, rootKey: $1, store.options) }
    return ids!  // set where nothing was thrown
  }

  /// See ``Container/removeKey(_:)``.
  func remove(_ credential: borrowing Credential) throws -> Int {
    var removedCount = 0
    try change { keys, _ in removedCount = try keys.remove(credential, store.options) }
    return removedCount
  }

  /// See ``Container/removeKey(id:)``.
  func remove(_ id: Identifier) throws { try change { keys, _ in try keys.remove(id) } }

  /// See ``Container/setLabel(_:ofKey:)``.
  func setLabel(_ label: String?, of id: Identifier) throws {
    try change { keys, _ in try keys.setLabel(id, label) }
  }

  private func change(_ body: (inout KeyTable, borrowing SecretKey) throws -> Void) throws {
    guard store.mode == .readWrite else { throw ContainerError(.readOnly) }
    try store.reportingIO {
      try store.commitLog.withLock { log in
        if log.isClosed { throw store.closed }
        try store.requireNoFailure()
        let old = try log.superblock.withBody { [slot = log.superblock.slot] in KeyTable(slot, $0) }
        var new = old
        try body(&new, log.superblock.rootKey)
        guard new != old else { return }
        try store.failing(&log) { try $0.superblock.replaceKeys(new) }
      }
    }
  }
}
