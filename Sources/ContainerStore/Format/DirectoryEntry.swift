/// The target of a directory entry.
package struct DirectoryEntry: Equatable, Sendable {
  package var kind: FileKind
  package var file: UInt64

  var encoded: [UInt8] {
    var writer = ByteWriter()
    writer.append(kind.rawValue)
    writer.appendZeros(7)
    writer.append(file)
    return writer.bytes
  }

  init(kind: FileKind, file: UInt64) {
    self.kind = kind
    self.file = file
  }

  init(_ bytes: [UInt8]) throws(MalformedBytes) {
    var reader = ByteReader(bytes)
    kind = try reader.fileKind()
    try reader.zeros(7)
    file = try reader.read()
    try reader.end()
  }
}
