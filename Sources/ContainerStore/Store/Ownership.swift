import EncryptedFile
import Locks

/// What shows that the container's directory still holds the container that was opened: the file
/// that is locked is its lock, and its superblock is the one that was written last. Somebody may have
/// copied another container, or an older state, over its files.
final class Ownership: Sendable {
  private struct State {
    var slot: [UInt8]
    /// The superblock as it was opened last.
    var file: (any BlockFile)?
    var identity: FileIdentity?
  }

  private let io: any BlockIO
  private let lockFile: any BlockFile
  private let state: Guarded<State>

  init(io: any BlockIO, lockFile: any BlockFile, slot: SuperblockSlot) {
    self.io = io
    self.lockFile = lockFile
    state = Guarded(State(slot: slot.bytes))
  }

  /// Called when the first of both copies of a new slot is durable.
  func expect(_ slot: SuperblockSlot) { state.withLock { $0.slot = slot.bytes } }

  /// Throws with `replacedFile` when the directory has another container, or an older state of this one.
  /// Called before names are followed.
  func require() throws(IOFailure) {
    guard try io.leads(ContainerLock.name, to: lockFile) else { throw Self.failure }
    let identity = try io.identity(of: Superblock.name)
    guard identity != nil else { throw Self.failure }
    state.withLock { if $0.identity != identity { ($0.file, $0.identity) = (nil, identity) } }
    try requireContents()
  }

  /// The same for a file that is open: only its contents may be another one's.
  func requireContents() throws(IOFailure) {
    while true {
      let expected = state.withLock { $0.slot }
      if try superblockHas(expected) { return }
      // An update may have written both copies meanwhile.
      guard state.withLock({ $0.slot }) != expected else { throw Self.failure }
    }
  }

  private static let failure = IOFailure("write", "the container", errno: replacedFile)

  /// Copies that the disk has lost are no other container's.
  private func superblockHas(_ expected: [UInt8]) throws(IOFailure) -> Bool {
    do throws(IOFailure) {
      let file: any BlockFile
      if let open = state.withLock({ $0.file }) {
        file = open
      } else {
        file = try io.open(Superblock.name, .read)
        state.withLock { $0.file = file }
      }
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
