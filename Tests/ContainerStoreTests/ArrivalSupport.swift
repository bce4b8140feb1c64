import Foundation
import SodiumPrimitives
import Testing

@testable import ContainerStore

/// A message with files, as another app offers it.
struct Parcel: Sendable {
  static let sender = "com.example.sender"
  static let incarnation = Incarnation(generation: 2, draw: Identifier(repeating: 3))!

  var message: ArrivingMessage
  var files: [(path: String, contents: [UInt8])]

  init(
    _ files: [(path: String, contents: [UInt8])], number: UInt64 = 1, sender: String = Parcel.sender,
    text: [UInt8] = [1, 2, 3]
  ) {
    self.files = files
    message = ArrivingMessage(
      id: Identifier(repeating: UInt8(truncatingIfNeeded: number)), sender: sender,
      incarnation: Parcel.incarnation, number: number, message: text, fileCount: UInt64(files.count),
      byteCount: UInt64(files.reduce(0) { $0 + $1.contents.count }),
      storedByteCount: UInt64(files.reduce(0) { $0 + TestFrame.storedByteCount(of: $1.contents) }))
  }

  /// Files of these sizes with contents that tell them apart.
  init(sizes: [Int], number: UInt64 = 1, sender: String = Parcel.sender) {
    self.init(
      sizes.enumerated().map { ("/d\($0 % 3)/file\($0)", testBytes($1, seed: UInt64($0) + 100 * number)) },
      number: number, sender: sender)
  }

  var manifest: [ArrivingFile] {
    files.map {
      ArrivingFile(
        path: Array($0.path.utf8), size: UInt64($0.contents.count), modified: 1_000_000_007,
        permissions: 0o640)
    }
  }

  var contents: [UInt8] { files.flatMap(\.contents) }

  /// Offers the list of files, some at a time.
  func addFiles(to arrival: Arrival, pageSize: Int = 256) throws {
    var rest = manifest[Int(arrival.filesKnown)...]
    while !rest.isEmpty {
      try arrival.add(Array(rest.prefix(pageSize)))
      rest = rest.dropFirst(pageSize)
    }
  }

  /// Sends what is wanted next, until the last boundary of a grain that is not behind `end`, in frames,
  /// and waits until it is stored.
  func append(
    to arrival: Arrival, from begin: Int? = nil, until end: Int? = nil, pieceSize: Int = 65_536,
    waits: Bool = true
  ) throws {
    let files = files.map(\.contents)
    var position = begin ?? Int(arrival.received)
    let end = end ?? Int(message.byteCount)
    while let frame = TestFrame.next(of: files, from: position, until: end, byteCount: pieceSize) {
      try arrival.append(frame)
      position = Int(frame.end)
    }
    if waits { try arrival.finish() }
  }

  /// All of it.
  @discardableResult
  func arrive(in container: Container, pieceSize: Int = 65_536) throws -> QueuedMessage {
    let arrival = try container.beginArrival(message, replacing: false)
    try addFiles(to: arrival)
    try append(to: arrival, pieceSize: pieceSize)
    return try arrival.commit()
  }

  /// What is wrong with what arrived.
  func complaint(about queued: QueuedMessage, in container: Container) throws -> String? {
    guard queued.id == message.id, queued.sender == message.sender, queued.message == message.message else {
      return "another message"
    }
    guard queued.files.count == files.count, (queued.directory == nil) == files.isEmpty else {
      return "\(queued.files.count) files"
    }
    for (file, sent) in zip(queued.files, files) {
      guard file.path == queued.directory! + sent.path, file.size == sent.contents.count,
        areSame(try container.contents(at: file.path), sent.contents)
      else { return "\(file.path) is not \(sent.path)" }
    }
    return nil
  }

  func wasDelivered(to container: Container) throws -> Bool {
    try container.wasDelivered(
      sender: message.sender, incarnation: message.incarnation, number: message.number)
  }
}

extension Container {
  /// Every frame survives the death of the process.
  func beginArrival(_ message: ArrivingMessage) throws -> Arrival {
    try beginArrival(message, replacing: false, stagingInterval: 1)
  }

  /// Whether nothing else may arrive under the number: a message has, or it is below the floor.
  func wasDelivered(sender: String, incarnation: Incarnation, number: UInt64) throws -> Bool {
    let id = Identifier(repeating: 0xff)
    return try ledger(sender: sender, incarnation: incarnation, number: number, id: id).state != .unknown
  }

  /// Names below the staging directory; none when it is not there.
  func staged() throws -> [String] {
    guard try attributes(at: "/.opendynamics/staging") != nil else { return [] }
    return try list("/.opendynamics/staging", recursively: true).map(\.path)
  }
}
