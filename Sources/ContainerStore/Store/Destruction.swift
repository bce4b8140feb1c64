import EncryptedFile
import SodiumPrimitives

/// A file that services keep in a container's directory: the key of the app's presence, in the clear (BROKER-PROTOCOL.md, "Keys"). Beside it, with
/// `.new` behind the name, is the next one while it is written.
package let presenceFileName = "presence.json"

/// The destruction of a container (CONTAINER-FORMAT.md, "Destroying"): its key slots first, then its name, then the rest.
///
/// Once its key slots are overwritten, a creation or another destruction finishes it.
enum Destruction {
  /// What the superblock is called once its key slots are overwritten.
  static let name = "destroyed"

  /// See ``Container/destroy(at:id:)``.
  static func run(_ io: any BlockIO, id: Identifier, acknowledge: () -> Void = {}) throws {
    guard try self.id(in: io) == id else { throw other(io) }
    let lock = try ContainerLock.take(io, mode: .readWrite)
    defer { lock.unlock(.writer) }
    // Another one may have come to its place.
    guard try self.id(in: io) == id else { throw other(io) }
    try finish(io, acknowledge: acknowledge)
  }

  private static func other(_ io: any BlockIO) -> ContainerError {
    ContainerError(.invalidArgument, path: io.place, detail: "the container there is another one")
  }

  /// The id in the superblock, also in one whose key slots are overwritten. Throws `notAContainer`.
  static func id(in io: any BlockIO) throws -> Identifier {
    let file: any BlockFile
    do {
      file = try Superblock.file(of: io)
    } catch let error as ContainerError {
      guard let begun = try io.openIfReadable(name, .read) else { throw error }
      file = begun
    }
    guard let id = try Superblock.slots(of: file).compactMap({ $0.flatMap(SuperblockSlot.containerID) }).first
    else {
      throw ContainerError(.notAContainer, path: io.place)
    }
    return id
  }

  /// Whether the key slots there are overwritten, in the superblock itself or, where there is none, in what it is called then.
  static func isBegun(_ io: any BlockIO) throws(IOFailure) -> Bool {
    let place = try io.identity(of: Superblock.name) == nil ? name : Superblock.name
    guard let file = try io.openIfReadable(place, .read) else { return false }
    let slots = try Superblock.slots(of: file)
    let isOverwritten = slots.compactMap(\.self).contains { slot in
      slot.count == SuperblockSlot.byteCount && SuperblockSlot.containerID(in: slot) != nil
        && slot.dropFirst(SuperblockSlot.keySlotsOffset).allSatisfy { $0 == 0 }
    }
    return isOverwritten && slots.allSatisfy { Superblock.reading($0).isLost }
  }

  /// Finishes one that was begun, if there is one.
  static func goOn(_ io: any BlockIO) throws {
    guard (try? isBegun(io)) == true else { return }
    let lock = try ContainerLock.take(io, mode: .readWrite)
    defer { lock.unlock(.writer) }
    if try isBegun(io) { try finish(io) }
  }

  /// All that follows the header: key slots, body and authenticator, of both copies. One that cannot be written is no reason to spare the
  /// other.
  private static func overwrite(_ superblock: any BlockFile) throws(IOFailure) {
    let zeros = [UInt8](repeating: 0, count: SuperblockSlot.byteCount - SuperblockSlot.keySlotsOffset)
    var failure: IOFailure?
    for offset in SuperblockSlot.offsets {
      do throws(IOFailure) {
        try superblock.write(zeros, at: offset + UInt64(SuperblockSlot.keySlotsOffset))
        try superblock.synchronize()
      } catch { failure = failure ?? error }
    }
    if let failure { throw failure }
  }

  /// Overwrites the key slots, and removes files of a container and nothing else: without their keys they are noise. The name
  /// that says so goes when everything else is known to be gone.
  private static func finish(_ io: any BlockIO, acknowledge: () -> Void = {}) throws {
    let isNamed = try io.identity(of: Superblock.name) != nil
    try overwrite(try io.open(isNamed ? Superblock.name : name, .readWrite))
    for name in [presenceFileName, presenceFileName + ".new"] { try? io.remove(name) }
    if isNamed {
      try io.rename(Superblock.name, to: name)
      try io.synchronizeDirectory("")
    }
    acknowledge()
    for name in [Superblock.unfinishedName] + Reserve.names { try? io.remove(name) }
    CatalogFiles.removeDirectories(of: io, where: CatalogFiles.mayRemove)
    guard (try? isEmptied(io)) == true else { return }
    // A lock alone says nothing.
    for name in [Self.name, ContainerLock.name] { try? io.remove(name) }
    try? io.removeDirectory("")
  }

  /// Whether nothing is left that a container made, and nothing of it comes back after a power loss.
  private static func isEmptied(_ io: any BlockIO) throws(IOFailure) -> Bool {
    for directory in CatalogFiles.directories {
      let names = try io.fileNames(in: directory)
      guard !names.contains(where: { CatalogFiles.mayRemove($0, in: directory) }) else { return false }
      if try io.identity(of: directory) != nil { try io.synchronizeDirectory(directory) }
    }
    try io.synchronizeDirectory("")
    return true
  }
}

extension PosixBlockIO {
  /// Whether the destruction of the container there has begun: nothing opens it, and a creation in its place finishes it.
  package var isBeingDestroyed: Bool { (try? Destruction.isBegun(self)) == true }
}
