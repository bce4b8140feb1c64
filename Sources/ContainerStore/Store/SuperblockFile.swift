import EncryptedFile
import SodiumPrimitives

/// The superblock of an opened container: the slot in use and the root key that opens its body.
///
/// Only the thread that holds the commit log's lock reads or writes it.
struct SuperblockFile: ~Copyable {
  private(set) var slot: SuperblockSlot
  let rootKey: SecretKey
  private let io: any BlockIO
  private let ownership: Ownership
  /// The time of the last write by the monotonic clock, in nanoseconds.
  private(set) var writeTime = Clock.monotonicNanoseconds()

  init(
    io: any BlockIO, ownership: Ownership, slot: SuperblockSlot, rootKey: consuming SecretKey
  ) {
    self.io = io
    self.ownership = ownership
    self.slot = slot
    self.rootKey = rootKey
  }

  /// The number of the next update.
  var nextUpdate: UInt64 { slot.sequence + 1 }

  /// Calls `body` with the opened body, whose secrets are wiped afterwards. Changes are not
  /// written.
  func withBody<R>(_ body: (inout SuperblockBody) throws -> R) throws -> R {
    var opened = try slot.open(rootKey: rootKey)
    defer { opened.wipeSecrets() }
    return try body(&opened)
  }

  /// Changes the body and writes both slots.
  mutating func update(_ change: (inout SuperblockBody) throws -> Void) throws {
    var body = try slot.open(rootKey: rootKey)
    defer { body.wipeSecrets() }
    try change(&body)
    try write(keySlots: slot.keySlots, body: body)
  }

  mutating func replaceKeySlots(_ slots: [KeySlot?]) throws {
    var body = try slot.open(rootKey: rootKey)
    defer { body.wipeSecrets() }
    try write(keySlots: slots, body: body)
  }

  private mutating func write(keySlots: [KeySlot?], body: SuperblockBody) throws {
    let new = try SuperblockSlot.make(
      containerID: slot.containerID, sequence: nextUpdate, keySlots: keySlots, body: body,
      rootKey: rootKey)
    try ownership.require()
    let file = try io.open(Superblock.name, .readWrite)
    let readings = try Superblock.read(file)
    // The copy in use stays whole until the other one is written.
    let offsets = readings[1] == .good(slot) ? SuperblockSlot.offsets : SuperblockSlot.offsets.reversed()
    for offset in offsets {
      try file.write(new.bytes, at: offset)
      try file.synchronize()
      ownership.expect(new)
    }
    slot = new
    writeTime = Clock.monotonicNanoseconds()
  }

  /// See ``Ownership/require()``.
  func requireOwn() throws(IOFailure) { try ownership.require() }

  // MARK: Keys

  /// The slots with one more for the credential. Throws `noFreeKeySlot`, and `invalidArgument` for an
  /// empty passphrase, impossible costs, and a credential that opens one of them.
  func keySlots(
    _ slots: [KeySlot?], adding credential: borrowing Credential, _ options: ContainerOptions
  ) throws -> [KeySlot?] {
    guard let free = slots.firstIndex(where: { $0 == nil }) else { throw ContainerError(.noFreeKeySlot) }
    guard try opened(by: credential, of: slots, options).isEmpty else {
      throw ContainerError(.invalidArgument, detail: "this key opens the container already")
    }
    var slots = slots
    slots[free] = try KeySlot.make(
      credential, parameters: options.passwordHash, rootKey: rootKey, containerID: slot.containerID)
    // With higher costs, these options could no longer open the container.
    try KeySlot.checkCosts(of: slots, memoryKiBMax: options.passwordHashMemoryKiBMax)
    return slots
  }

  /// The key slots without those that the credential opens, and the number of those. Throws
  /// `invalidArgument` when none would be left.
  func keySlots(
    removing credential: borrowing Credential, _ options: ContainerOptions
  ) throws -> (slots: [KeySlot?], removedCount: Int) {
    let removed = try opened(by: credential, of: slot.keySlots, options)
    let slots = slot.keySlots.enumerated().map { removed.contains($0) ? nil : $1 }
    guard slots.contains(where: { $0 != nil }) else {
      throw ContainerError(.invalidArgument, detail: "this is the last key; add another first")
    }
    return (slots, removed.count)
  }

  /// The key slots with one for the new credential in the place of those that the old one opens. Throws
  /// `wrongKey` when there are none, and as adding does.
  func keySlots(
    replacing old: borrowing Credential, with new: borrowing Credential, _ options: ContainerOptions
  ) throws -> [KeySlot?] {
    let removed = try opened(by: old, of: slot.keySlots, options)
    guard !removed.isEmpty else { throw ContainerError(.wrongKey) }
    guard try opened(by: new, of: slot.keySlots, options).isEmpty else {
      throw ContainerError(.invalidArgument, detail: "the new key opens the container already")
    }
    return try keySlots(
      slot.keySlots.enumerated().map { removed.contains($0) ? nil : $1 }, adding: new, options)
  }

  private func opened(
    by credential: borrowing Credential, of slots: [KeySlot?], _ options: ContainerOptions
  ) throws -> [Int] {
    // The container may be open with a key, which computes nothing that slots ask for.
    if credential.kind == .passphrase {
      try KeySlot.checkCosts(of: slots, memoryKiBMax: options.passwordHashMemoryKiBMax)
    }
    var opened: [Int] = []
    for (i, keySlot) in slots.enumerated()
    where try keySlot?.open(credential, containerID: slot.containerID, in: rootKey.pool) != nil {
      opened.append(i)
    }
    return opened
  }
}
