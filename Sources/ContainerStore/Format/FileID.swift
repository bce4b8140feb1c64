import SodiumPrimitives

/// Ids of journals and tables: the number of the superblock's update that is to name the file, and 8 random bytes. So a file's name says
/// whether it belongs to a state after the one that a superblock has, also to somebody without that state's keys.
extension Identifier {
  static func ofFile(namedIn update: UInt64) -> Identifier {
    Identifier(withUnsafeBytes(of: update.bigEndian) { Array($0) } + Random.bytes(8))
  }

  /// The update that is to name the journal or table.
  var update: UInt64 { bytes.prefix(8).reduce(0) { $0 << 8 | UInt64($1) } }
}
