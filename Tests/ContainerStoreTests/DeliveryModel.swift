import ContainerStore
import SodiumPrimitives

/// Messages on their way out and in, as plain dictionaries.
struct DeliveryModel: Equatable {
  struct Outgoing: Equatable {
    var id: Identifier
    var mayBeOffered: Bool
    var message: [UInt8]
    /// As they were when the message was put in.
    var files: [String: [UInt8]]
  }

  struct Queued: Equatable {
    var id: Identifier
    var message: [UInt8]
    /// Their sizes, by their paths in the inbox.
    var files: [String: UInt64]
  }

  /// By their numbers.
  var outbox: [UInt64: Outgoing] = [:]
  /// By their places in it.
  var queue: [UInt64: Queued] = [:]
  /// Numbers of parcels.
  var delivered: Set<UInt64> = []

  /// Why what a container shows is something else; nil when it is this.
  func difference(from shown: DeliveryModel) -> String? {
    for number in Set(outbox.keys).union(shown.outbox.keys).sorted() {
      guard let mine = outbox[number] else { return "message \(number) should not be in the outbox" }
      guard let other = shown.outbox[number] else { return "message \(number) is missing in the outbox" }
      if mine.mayBeOffered != other.mayBeOffered {
        return "message \(number) is \(other.mayBeOffered ? "offered" : "not offered")"
      }
      if mine != other {
        return
          "message \(number) has \(other.files.mapValues(\.count)), expected \(mine.files.mapValues(\.count))"
      }
    }
    if queue != shown.queue {
      return "the queue has \(shown.queue.keys.sorted()), expected \(queue.keys.sorted())"
    }
    if delivered != shown.delivered {
      return "\(shown.delivered.sorted()) were delivered, expected \(delivered.sorted())"
    }
    return nil
  }
}

extension Container {
  /// The outbox, the queue, and which of these parcels the ledger has.
  func deliveryModel(_ parcels: [Parcel]) throws -> DeliveryModel {
    var model = DeliveryModel()
    for entry in try outboxEntries() {
      let contents = try readOutbox(entry.number)
      var files: [String: [UInt8]] = [:]
      var position = 0
      for file in try outboxFiles(entry.number, from: 0, limit: .max) {
        let end = min(position + Int(file.size), contents.count)
        files[String(decoding: file.path, as: UTF8.self)] = Array(contents[position..<end])
        position = end
      }
      model.outbox[entry.number] = DeliveryModel.Outgoing(
        id: entry.id, mayBeOffered: entry.mayBeOffered, message: try outboxMessage(entry.number), files: files
      )
    }
    for queued in try messageQueue().unhandled {
      model.queue[queued.arrival] = DeliveryModel.Queued(
        id: queued.id, message: queued.message,
        files: Dictionary(uniqueKeysWithValues: queued.files.map { ($0.path, $0.size) }))
    }
    for parcel in parcels where try parcel.wasDelivered(to: self) {
      model.delivered.insert(parcel.message.number)
    }
    return model
  }
}
