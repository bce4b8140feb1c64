import EncryptedFile
import Locks

/// What shows that the container's directory still holds the container that was opened: the file
/// that is locked is its lock, and its superblock is the one that was written last. Somebody may have
/// copied another container, or an older state, over its files.
final class Ownership: Sendable {
  private let io: any BlockIO
  private let lockFile: any BlockFile
  private let slot: Guarded<[UInt8]>

  init(io: any BlockIO, lockFile: any BlockFile, slot: SuperblockSlot) {
    self.io = io
    self.lockFile = lockFile
    self.slot = Guarded(slot.bytes)
  }

  /// Called when the first of both copies of a new slot is durable.
  func expect(_ slot: SuperblockSlot) { self.slot.withLock { $0 = slot.bytes } }

  /// Throws with `ESTALE` when it is another container, or an older state of this one.
  func require() throws(IOFailure) {
    guard try io.leads(ContainerLock.name, to: lockFile) else { throw Self.failure }
    while true {
      let expected = slot.withLock { $0 }
      if try superblockHas(expected) { return }
      // An update may have written both copies meanwhile.
      guard slot.withLock({ $0 }) != expected else { throw Self.failure }
    }
  }

  private static let failure = IOFailure("write", "the container", errno: replacedFile)

  /// Copies that the disk has lost are no other container's.
  private func superblockHas(_ expected: [UInt8]) throws(IOFailure) -> Bool {
    do throws(IOFailure) {
      let file = try io.open(Superblock.name, .read)
      var isReadable = false
      for offset in SuperblockSlot.offsets {
        do throws(IOFailure) {
          if try file.read(SuperblockSlot.byteCount, at: offset) == expected { return true }
          isReadable = true
        } catch {
          guard error.isOfFile else { throw error }
        }
      }
      if !isReadable { return true }
      return try Superblock.read(file).allSatisfy(\.isLost)
    } catch {
      guard error.isOfFile else { throw error }
      return error.errno != missingFile
    }
  }
}
