package import SodiumPrimitives

/// A message offered by another app.
package struct ArrivingMessage: Sendable {
  package static let byteCountMax = 2 << 20
  /// Exclusive limit of the bytes of all files together.
  package static let filesByteCountMax: UInt64 = 1 << 62
  /// Limit of the bytes of all files' paths. The data kept for the paths takes a few times as much
  /// memory.
  package static let pathsByteCountMax = 64 << 20
  /// Limit of the number of different folders in the paths.
  package static let folderCountMax = 200_000

  package var id: Identifier
  /// Application id.
  package var sender: String
  /// The incarnation under which the sender offers the message.
  package var incarnation: Incarnation
  /// The sender's number for the message, 1 and more.
  package var number: UInt64
  /// The encoded message, at most 2 MiB.
  package var message: [UInt8]
  package var fileCount: UInt64
  /// Bytes of all files together.
  package var byteCount: UInt64
  /// Bytes of all segments together, at most: holes have none.
  package var storedByteCount: UInt64

  package init(
    id: Identifier, sender: String, incarnation: Incarnation, number: UInt64, message: [UInt8],
    fileCount: UInt64, byteCount: UInt64, storedByteCount: UInt64
  ) {
    self.id = id
    self.sender = sender
    self.incarnation = incarnation
    self.number = number
    self.message = message
    self.fileCount = fileCount
    self.byteCount = byteCount
    self.storedByteCount = storedByteCount
  }

  func check() throws {
    guard OutboxState.numbers.contains(number) else {
      throw ContainerError(.invalidArgument, detail: "a message has no number \(number)")
    }
    guard message.count <= Self.byteCountMax else {
      throw ContainerError(
        .invalidArgument, detail: "a message of \(message.count) bytes; it may have \(Self.byteCountMax)")
    }
    guard byteCount < Self.filesByteCountMax, fileCount > 0 || byteCount == 0, fileCount <= UInt32.max,
      storedByteCount < Self.filesByteCountMax, byteCount > 0 || storedByteCount == 0
    else {
      throw ContainerError(
        .invalidArgument,
        detail: "\(fileCount) files of \(byteCount) bytes, \(storedByteCount) of them stored, cannot be")
    }
  }
}

/// The error for a message that exceeds a limit of the container.
package struct ArrivalLimit: Error, Equatable {
  /// The limit's name in DELIVERY-PROTOCOL.md.
  package let name: String

  package static let paths = ArrivalLimit(name: "bytes of the paths of a message")
  package static let folders = ArrivalLimit(name: "folders of a message")
  package static let messages = ArrivalLimit(name: "messages that are staged")
  package static let deliveries = ArrivalLimit(name: "deliveries remembered")
}

/// The error for a message whose number cannot be used under its incarnation, with the newest generation
/// that was seen of its sender.
package struct ArrivalNumberTaken: Error, Equatable {
  package let generation: UInt64
}

/// A file of an arriving message.
package struct ArrivingFile: Sendable {
  /// Absolute path in the sender's container.
  package var path: [UInt8]
  package var size: UInt64
  /// Nanoseconds since 1970-01-01 UTC.
  package var modified: Int64
  /// POSIX permission bits.
  package var permissions: UInt16

  package init(path: [UInt8], size: UInt64, modified: Int64, permissions: UInt16) {
    self.path = path
    self.size = size
    self.modified = modified
    self.permissions = permissions
  }
}
