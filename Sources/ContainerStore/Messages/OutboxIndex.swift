import Locks
import SodiumPrimitives

/// The messages in the outbox, by id and by receiver, in memory: whoever sends or settles one does not read all others.
///
/// It is read from the catalog when it is first needed, and follows every commit from then on. All calls are made
/// while the catalog's lock is held.
final class OutboxIndex: Sendable {
  private let contents = Guarded<Contents?>(nil)

  private struct Contents {
    private var messages: [UInt64: (id: Identifier, receiver: String)] = [:]
    private(set) var ids: Set<Identifier> = []
    /// Ascending.
    private var numbers: [String: [UInt64]] = [:]
    /// These messages have receivers that nobody knows because of damage; the numbers ascend.
    private var unreadable: [UInt64] = []

    init(_ records: some CatalogReading) throws {
      try records.scan(.all(.outbox)) { key, value in
        if let entry = try? OutboxEntry(key: key, value: value) {
          add(entry)
        } else if key.bytes.count == 9, let number = key.number(at: 1) {
          unreadable.append(number)
        }
      }
    }

    func floor(of receiver: String) -> UInt64? {
      [numbers[receiver]?.first, unreadable.first].compactMap { $0 }.min()
    }

    mutating func add(_ entry: OutboxEntry) {
      messages[entry.number] = (entry.id, entry.receiver)
      ids.insert(entry.id)
      numbers[entry.receiver, default: []].append(entry.number)
    }

    mutating func remove(_ number: UInt64) {
      guard let (id, receiver) = messages.removeValue(forKey: number) else {
        return unreadable.removeAll { $0 == number }
      }
      ids.remove(id)
      guard var rest = numbers.removeValue(forKey: receiver) else { return }
      if let index = rest.firstIndex(of: number) { rest.remove(at: index) }
      if !rest.isEmpty { numbers[receiver] = rest }
    }
  }

  /// `records` is the catalog as it is now.
  private func reading<R>(_ records: some CatalogReading, _ body: (Contents) -> R) throws -> R {
    try contents.withLock { contents in
      let read = try contents ?? Contents(records)
      contents = read
      return body(read)
    }
  }

  func contains(_ id: Identifier, in records: some CatalogReading) throws -> Bool {
    try reading(records) { $0.ids.contains(id) }
  }

  /// The least number of a message that is, or may be, for the receiver.
  func floor(of receiver: String, in records: some CatalogReading) throws -> UInt64? {
    try reading(records) { $0.floor(of: receiver) }
  }

  /// The message is in the catalog now. Its number is greater than all before it.
  func add(_ entry: OutboxEntry) { contents.withLock { $0?.add(entry) } }

  /// The message is not in the catalog any more.
  func remove(_ number: UInt64) { contents.withLock { $0?.remove(number) } }
}
