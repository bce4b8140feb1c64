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
    try update(keySlots: slot.keySlots, change)
  }

  mutating func replaceKeys(_ keys: KeyTable) throws {
    try update(keySlots: keys.slots) { $0.keyLabels = keys.labels }
  }

  private mutating func update(keySlots: [KeySlot?], _ change: (inout SuperblockBody) throws -> Void) throws {
    var body = try slot.open(rootKey: rootKey)
    defer { body.wipeSecrets() }
    try change(&body)
    try write(keySlots: keySlots, body: body)
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
}
