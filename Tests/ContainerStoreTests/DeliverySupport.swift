import ContainerStore
import SodiumPrimitives

extension Container {
  /// Every path with its contents, without what is staged of messages on their way.
  func treeWithoutStaging() throws -> Tree {
    try tree().filter { !$0.key.hasPrefix("/.opendynamics") }
  }

  /// What the files of a message in the outbox hold, from a byte on.
  func readOutbox(_ number: UInt64, from offset: UInt64 = 0, pieceByteCount: Int = 1 << 20) throws -> [UInt8]
  {
    let reader = try outboxReader(number, from: offset)
    var bytes: [UInt8] = []
    var buffer = [UInt8](repeating: 0xaa, count: pieceByteCount)
    while case let count = try buffer.withUnsafeMutableBytes({ try reader.read(into: $0) }), count > 0 {
      bytes += buffer[0..<count]
    }
    return bytes
  }

  /// The messages in the outbox with all that they hold, and those in the queue, under keys that are no paths.
  func messages() throws -> Tree {
    var tree: Tree = [:]
    for entry in try outboxEntries() {
      let name = messageName(entry.id, mayBeOffered: entry.mayBeOffered)
      tree[name] = try outboxMessage(entry.number) + readOutbox(entry.number)
    }
    for queued in try queuedMessages() {
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
