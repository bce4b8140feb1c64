import EncryptedFile
import SodiumPrimitives

/// The destruction of a container (CONTAINER-FORMAT.md, "Destroying"): its key slots first, then its name, then the rest.
///
/// From the moment in which the overwritten superblock has another name, whoever comes next goes on with it: an opening, a
/// creation, another destruction.
enum Destruction {
  /// What the superblock is called once its key slots are overwritten.
  static let name = "destroyed"

  /// See ``Container/destroy(at:id:)``.
  static func run(_ io: any BlockIO, id: Identifier) throws {
    guard try self.id(in: io) == id else { throw other(io) }
    let lock = try ContainerLock.take(io, mode: .readWrite)
    defer { lock.unlock(.writer) }
    // Another one may have come to its place.
    guard try self.id(in: io) == id else { throw other(io) }
    if let superblock = try io.openIfReadable(Superblock.name, .readWrite) {
      try overwrite(superblock)
      try io.rename(Superblock.name, to: name)
      try io.synchronizeDirectory("")
    }
    finish(io)
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
    for offset in SuperblockSlot.offsets {
      if let id = SuperblockSlot.containerID(in: try file.read(SuperblockSlot.byteCount, at: offset)) {
        return id
      }
    }
    throw ContainerError(.notAContainer, path: io.place)
  }

  /// Whether a destruction was begun and not finished, and nothing else has come to its place.
  private static func isBegun(_ io: any BlockIO) throws(IOFailure) -> Bool {
    let (superblock, begun) = (try io.identity(of: Superblock.name), try io.identity(of: name))
    return superblock == nil && begun != nil
  }

  /// Finishes one that was begun; false when there is none.
  static func goOn(_ io: any BlockIO) -> Bool {
    guard (try? isBegun(io)) == true, let lock = try? ContainerLock.take(io, mode: .readWrite) else {
      return false
    }
    defer { lock.unlock(.writer) }
    guard (try? isBegun(io)) == true else { return false }
    finish(io)
    return true
  }

  /// All that follows the header: key slots, body and authenticator, of both copies.
  private static func overwrite(_ superblock: any BlockFile) throws(IOFailure) {
    let zeros = [UInt8](repeating: 0, count: SuperblockSlot.byteCount - SuperblockSlot.keySlotsOffset)
    for offset in SuperblockSlot.offsets {
      try superblock.write(zeros, at: offset + UInt64(SuperblockSlot.keySlotsOffset))
    }
    try superblock.synchronize()
  }

  /// Removes files of a container and nothing else: without their keys they are noise. What cannot be removed stays.
  private static func finish(_ io: any BlockIO) {
    try? io.remove(Superblock.unfinishedName)
    CatalogFiles.removeDirectories(of: io, where: CatalogFiles.mayRemove)
    for name in Reserve.names + [ContainerLock.name, Self.name] { try? io.remove(name) }
    try? io.removeDirectory("")
  }
}
