import EncryptedFile
import Locks
import SodiumPrimitives

/// A journal or a table: two files with the same bytes at the same offsets (CONTAINER-FORMAT.md).
///
/// Each file is opened on first use: an ordinary reader rarely needs the second one.
final class CopiedFile: Sendable {
  enum Folder: String {
    case journal, catalog
  }

  static let copyFolder = "copy"
  static let count = 2

  /// Whether a file of the container is one of two copies.
  static func isName(_ file: String) -> Bool {
    [Folder.journal.rawValue, Folder.catalog.rawValue, copyFolder].contains { file.hasPrefix($0 + "/") }
  }

  /// Names of both files in the container.
  static func names(_ id: Identifier, in folder: Folder) -> [String] {
    [folder.rawValue + "/" + id.hex, copyFolder + "/" + id.hex]
  }

  let names: [String]
  private let io: any BlockIO
  private let access: BlockAccess
  private let files: Guarded<[(any BlockFile)?]>

  init(_ io: any BlockIO, _ id: Identifier, in folder: Folder, _ access: BlockAccess = .read) {
    self.io = io
    self.access = access
    names = Self.names(id, in: folder)
    files = Guarded([nil, nil])
  }

  /// Creates both files; removes both when one of them cannot be created.
  static func create(_ io: any BlockIO, _ id: Identifier, in folder: Folder) throws(IOFailure) -> CopiedFile {
    let file = CopiedFile(io, id, in: folder, .createNew)
    do throws(IOFailure) {
      for i in 0..<count {
        do throws(IOFailure) { _ = try file.copy(i) } catch {
          // The directory was lost with its contents; reading reports that.
          guard error.errno == missingFile else { throw error }
          try io.createDirectory(file.directory(i))
          try io.synchronizeDirectory("")
          _ = try file.copy(i)
        }
      }
    } catch {
      remove(io, id, in: folder)
      throw error
    }
    return file
  }

  /// Removes whichever of the two files exist.
  static func remove(_ io: any BlockIO, _ id: Identifier, in folder: Folder) {
    for name in names(id, in: folder) { try? io.remove(name) }
  }

  /// One of the two files, opened on first use. Throws the failure to open it.
  func copy(_ i: Int) throws(IOFailure) -> any BlockFile {
    try files.withLock { files throws(IOFailure) in
      if let file = files[i] { return file }
      let file = try io.open(names[i], access)
      files[i] = file
      return file
    }
  }

  func write(_ bytes: [UInt8], at offset: UInt64) throws(IOFailure) {
    for i in 0..<Self.count { try copy(i).write(bytes, at: offset) }
  }

  /// Makes both files and their names durable.
  func synchronizeNew() throws(IOFailure) {
    for i in 0..<Self.count { try copy(i).synchronize() }
    for i in 0..<Self.count { try io.synchronizeDirectory(directory(i)) }
  }

  private func directory(_ i: Int) -> String { String(names[i].prefix { $0 != "/" }) }
}
