import EncryptedFile
import SodiumPrimitives

extension Container {
  /// Adds a way to open the container. Throws `noFreeKeySlot`, and `invalidArgument` for an empty passphrase or impossible costs.
  public func addKey(_ credential: borrowing Credential) throws {
    guard mode == .readWrite else { throw ContainerError(.readOnly) }
    try flushing.withLock { state in
      if state.isClosed { throw ContainerError(.closed) }
      try requireNoFailure()
      guard let free = state.slot.keySlots.firstIndex(where: { $0 == nil }) else {
        throw ContainerError(.noFreeKeySlot)
      }
      var slots = state.slot.keySlots
      slots[free] = try KeySlot.make(
        credential, parameters: options.passwordHash, rootKey: state.rootKey, containerID: id,
        cipher: state.cipher)
      // Else nobody could open it with these options.
      try KeySlot.checkCosts(of: slots, memoryKiBMax: options.passwordHashMemoryKiBMax)
      try replaceKeySlots(&state, slots)
    }
  }

  /// Removes the ways to open the container that fit the credential, and returns how many. The last one stays: then it throws
  /// `invalidArgument`.
  @discardableResult
  public func removeKey(_ credential: borrowing Credential) throws -> Int {
    guard mode == .readWrite else { throw ContainerError(.readOnly) }
    return try flushing.withLock { state in
      if state.isClosed { throw ContainerError(.closed) }
      try requireNoFailure()
      var slots = state.slot.keySlots
      var removed = 0
      for (i, slot) in slots.enumerated() {
        guard let slot, try slot.open(credential, containerID: id, cipher: state.cipher) != nil else {
          continue
        }
        slots[i] = nil
        removed += 1
      }
      guard slots.contains(where: { $0 != nil }) else {
        throw ContainerError(.invalidArgument, detail: "this is the last key; add another first")
      }
      if removed > 0 { try replaceKeySlots(&state, slots) }
      return removed
    }
  }

  private func replaceKeySlots(_ state: inout FlushState, _ slots: [KeySlot?]) throws {
    var body = try state.slot.open(rootKey: state.rootKey, cipher: state.cipher)
    defer { body.wipeSecrets() }
    try failing(&state) { try writeSuperblock(&$0, keySlots: slots, body: body) }
  }
}
