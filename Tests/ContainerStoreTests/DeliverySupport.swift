import ContainerStore
import SodiumPrimitives

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
