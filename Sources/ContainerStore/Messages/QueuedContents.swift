/// The concatenated values of a message's records `79`.
struct QueuedContents: Equatable {
  struct File: Equatable {
    /// Path relative to the message's directory.
    var place: [UInt8]
    var size: UInt64

    var encoded: [UInt8] {
      var writer = ByteWriter()
      writer.append(varint: size)
      writer.append(varint: UInt64(place.count))
      writer.append(place)
      return writer.bytes
    }
  }

  var message: [UInt8]
  var files: [File]

  var encoded: [UInt8] { message + files.flatMap(\.encoded) }

  init(message: [UInt8], files: [File]) {
    self.message = message
    self.files = files
  }

  init(_ bytes: [UInt8], of record: QueuedRecord) throws(MalformedBytes) {
    var reader = ByteReader(bytes)
    message = try reader.bytes(Int(record.messageByteCount))
    files = []
    var places: Set<[UInt8]> = []
    var rest = ArrivingMessage.filesByteCountMax
    for _ in 0..<record.fileCount {
      let size = try reader.varint()
      let place = try reader.bytes(Int(try reader.varint32()))
      guard size < rest else { throw MalformedBytes(what: "files that are too long together") }
      rest -= size
      guard InboxPlaces.isPossible(place), places.insert(place).inserted else {
        throw MalformedBytes(what: "a file in a place that cannot be")
      }
      files.append(File(place: place, size: size))
    }
    try reader.end()
  }
}
