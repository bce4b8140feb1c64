import EncryptedFile
import SodiumPrimitives

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

/// Finding and choosing the superblock's slots.
enum Superblock {
  static let name = "superblock"
  static let unfinishedName = "superblock.new"

  /// Writes the first superblock, as the last step of making a container. The file gets its name
  /// when both slots are durable: a directory without a superblock is not a container.
  static func writeFirst(_ bytes: [UInt8], to io: any BlockIO) throws(IOFailure) {
    let file = try io.open(unfinishedName, .createNew)
    for offset in SuperblockSlot.offsets { try file.write(bytes, at: offset) }
    try file.synchronize()
    // Names become durable in any order: those of the other files must be durable before the
    // superblock's.
    try io.synchronizeDirectory("")
    try io.rename(unfinishedName, to: name)
    try io.synchronizeDirectory("")
  }

  static func file(of io: any BlockIO) throws -> any BlockFile {
    do throws(IOFailure) {
      return try io.open(name, .read)
    } catch {
      if absentFile.contains(error.errno) {
        throw ContainerError(.notAContainer, path: io.place, circumstance: io.isThere ? .usual : .missing)
      }
      throw error
    }
  }

  /// The bytes of the slots; nil for one that the system does not read. Throws when it reads neither.
  static func slots(of file: any BlockFile) throws(IOFailure) -> [[UInt8]?] {
    var slots: [[UInt8]?] = []
    var refusal: IOFailure?
    for offset in SuperblockSlot.offsets {
      do throws(IOFailure) { slots.append(try file.read(SuperblockSlot.byteCount, at: offset)) } catch {
        guard error.isOfFile else { throw error }
        slots.append(nil)
        refusal = refusal ?? error
      }
    }
    if let refusal, !slots.contains(where: { $0 != nil }) { throw refusal }
    return slots
  }

  /// A slot that the system does not read is as good as torn, unless it reads neither.
  static func read(_ file: any BlockFile) throws(IOFailure) -> [SuperblockSlot.Reading] {
    try slots(of: file).map(reading)
  }

  static func reading(_ slot: [UInt8]?) -> SuperblockSlot.Reading {
    guard let slot else { return .torn }
    let isCut = slot.count < SuperblockSlot.byteCount && slot.starts(with: SuperblockSlot.magic)
    return isCut ? .torn : SuperblockSlot.read(slot)
  }

  /// The slot to use, chosen before any key is tried, and the findings about the other slot. While
  /// a writer lives, a slot may be half updated; the slots are then read again.
  static func choose(
    _ file: any BlockFile, writerIsAlive: Bool
  ) throws -> (SuperblockSlot, [Finding]) {
    // The writer is another process, which does not tell when its update of a slot is complete.
    var attempts = writerIsAlive ? 100 : 1
    while true {
      attempts -= 1
      do {
        let (slot, findings) = try choose(try read(file))
        if findings.isEmpty || attempts <= 0 { return (slot, findings) }
      } catch  where attempts > 0 {
        usleep(1000)
        continue
      }
      usleep(1000)
    }
  }

  /// Whether the slot of an open store that is not in use is authentic, as it is on the disk now. A
  /// slot that is torn or newer is not judged.
  static func unusedSlotIsAuthentic(of store: Store) throws -> Bool {
    let readings = try read(try store.io.open(name, .read))
    return try store.withSuperblock { slot, _, rootKey in
      for case .good(let other) in readings where other != slot && other.sequence < slot.sequence {
        do { _ = try other.open(rootKey: rootKey) } catch let error as ContainerError
          where error.code == .superblockAltered
        {
          return false
        }
      }
      return true
    }
  }

  private static func choose(_ readings: [SuperblockSlot.Reading]) throws -> (SuperblockSlot, [Finding]) {
    for case .unsupported(let version, let minimum) in readings {
      throw ContainerError(
        .unsupportedFormat,
        detail: "format \(version), for readers of format \(minimum) or later; this one reads 3")
    }
    for case .malformed(let what) in readings { throw ContainerError(.superblockAltered, detail: what) }
    let good = readings.compactMap { reading -> SuperblockSlot? in
      if case .good(let slot) = reading { slot } else { nil }
    }
    switch good.count {
    case 2:
      let newer = good[0].sequence >= good[1].sequence ? good[0] : good[1]
      let older = good[0].sequence >= good[1].sequence ? good[1] : good[0]
      guard good[0].sequence != good[1].sequence || good[0] == good[1] else {
        throw ContainerError(.superblockAltered, detail: "two copies of one number differ")
      }
      guard newer.containerID == older.containerID else {
        throw ContainerError(.superblockAltered, detail: "the copies belong to different containers")
      }
      if newer.sequence == older.sequence { return (newer, []) }
      let isOneBehind = newer.sequence == older.sequence + 1
      return (
        newer,
        [
          Finding(
            isOneBehind ? .note : .damage, .superblockSlotOutdated,
            "one copy of the superblock is \(newer.sequence - older.sequence) updates behind the other; "
              + "opening it for writing writes both")
        ]
      )
    case 1:
      return (
        good[0],
        [
          Finding(
            .damage, .superblockSlotTorn,
            "one copy of the superblock is torn, overwritten or unreadable; opening it for writing writes both"
          )
        ]
      )
    default:
      let isForeign = readings.allSatisfy { if case .foreign = $0 { true } else { false } }
      throw ContainerError(isForeign ? .notAContainer : .superblockTorn)
    }
  }

  /// The root key. The id of the first key that fits goes to `found`.
  static func rootKey(
    _ slot: SuperblockSlot, credential: borrowing Credential, options: ContainerOptions, in pool: KeyPool,
    _ hashing: HashObserver = .none, found: (Identifier) -> Void = { _ in }
  ) throws -> SecretKey {
    if credential.kind == .passphrase {
      try KeySlot.checkCosts(of: slot.keySlots, memoryKiBMax: options.passwordHashMemoryKiBMax)
    }
    for case let keySlot? in slot.keySlots {
      if let key = try keySlot.open(credential, containerID: slot.containerID, in: pool, hashing) {
        found(keySlot.id)
        return key
      }
    }
    throw ContainerError(.wrongKey)
  }
}
