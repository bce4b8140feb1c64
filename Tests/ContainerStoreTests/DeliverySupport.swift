import ContainerStore
import OpenDynamicsTesting
import SodiumPrimitives
import Testing

/// A container with an outbox, on a disk in memory.
struct Sender {
  let io = RecordingIO()
  let container: Container

  init(_ durability: Container.Durability = .full) throws {
    var options = testOptions(durability)
    options.compactionBytesPerSecond = 0
    container = try Container.create(io: io, credential: testCredential(), options: options)
  }

  func reopened() throws -> Container {
    try container.close()
    return try Container.open(io: io, credential: testCredential(), options: testOptions())
  }
}

func expectSound(_ container: Container, sourceLocation: SourceLocation = #_sourceLocation) throws {
  try container.synchronize()
  #expect(try container.verify().findings == [], sourceLocation: sourceLocation)
}

extension Container {
  func overwrite(_ path: String, at offset: Int, _ bytes: [UInt8]) throws {
    let file = try openFile(path, .readWrite)
    try bytes.withUnsafeBytes { try file.write($0, at: UInt64(offset)) }
    try file.close()
  }

  func truncate(_ path: String, to size: Int) throws {
    let file = try openFile(path, .readWrite)
    try file.truncate(to: UInt64(size))
    try file.close()
  }
}

extension Container {
  /// Every path with its contents, without what is staged of messages on their way.
  func treeWithoutStaging() throws -> Tree {
    try tree().filter { !$0.key.hasPrefix("/.opendynamics") }
  }

  /// The messages in the outbox with all that they hold, and those in the queue, under keys that are no paths.
  func messages() throws -> Tree {
    var tree: Tree = [:]
    for entry in try outboxEntries() {
      let name = messageName(entry.id, mayBeOffered: entry.mayBeOffered)
      tree[name] = try outboxMessage(entry.number) + readOutbox(entry.number)
    }
    for queued in try messageQueue().unhandled {
      tree[queueName(queued.id, in: queued.directory)] = queued.message
    }
    return tree
  }
}

func messageName(_ id: Identifier, mayBeOffered: Bool) -> String {
  "message \(id.bytes[0]), \(mayBeOffered ? "offered" : "waiting")"
}

func queueName(_ id: Identifier, in directory: String?) -> String {
  "queued \(id.bytes[0]) in \(directory ?? "no directory")"
}
