import EncryptedFile
import SodiumPrimitives

/// Identities of many new files, which have consecutive ids. There may be millions.
struct NewFiles: Sendable {
  private let first: UInt64
  /// The secrets of all files, concatenated.
  private let secrets: [UInt8]

  init(_ count: Int, in store: Store) {
    first = store.takeFileIDs(count)
    secrets = Random.bytes(count * Inode.secretByteCount)
  }

  subscript(file: Int) -> NewFile {
    let begin = file * Inode.secretByteCount
    return NewFile(
      id: first + UInt64(file), secret: Array(secrets[begin..<(begin + Inode.secretByteCount)]))
  }
}
