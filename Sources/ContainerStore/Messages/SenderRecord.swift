import EncryptedFile

/// What the ledger knows of a sender: the value of a record `60`.
struct SenderRecord: Equatable {
  /// The newest incarnation that was seen.
  var incarnation: Incarnation
  /// Every number below it is settled under the incarnation; 1 or more.
  var floor: UInt64 = 1
  /// Number of messages that have ever arrived under the incarnation.
  var arrivedCount: UInt64 = 0
  /// Of numbers below it, under whichever incarnation, messages may have been forgotten; 1 or more.
  var forgotten: UInt64 = 1
  /// Number of the sender's records `61`.
  var deliveryCount: UInt64 = 0
  var time: Int64 = 0

  /// So many numbers below the floor are remembered.
  static let rememberedNumberCount: UInt64 = 256
  /// Limit of the deliveries that are remembered of one sender.
  static let deliveryCountMax: UInt64 = 1 << 18

  /// The least number that may have a record `61`.
  var firstRemembered: UInt64 {
    floor > Self.rememberedNumberCount ? floor - Self.rememberedNumberCount : 1
  }

  init(incarnation: Incarnation) { self.incarnation = incarnation }

  /// A generation may be so far above the newest one: nobody leaves those that come after it without any.
  static let generationStepMax: UInt64 = 1 << 20

  /// Whether `other` takes its place.
  func isOlder(than other: Incarnation) -> Bool { Self.isOlder(incarnation.generation, than: other) }

  /// The same of a sender of which nothing is known, whose generation is 0.
  static func isOlder(_ generation: UInt64, than other: Incarnation) -> Bool {
    generation < other.generation && other.generation - generation <= generationStepMax
  }

  /// Goes on with `other` if that is newer.
  mutating func adopt(_ other: Incarnation) {
    guard isOlder(than: other) else { return }
    (incarnation, floor, arrivedCount) = (other, 1, 0)
  }

  var encoded: [UInt8] {
    var writer = ByteWriter()
    writer.append(incarnation)
    writer.append(floor)
    writer.append(arrivedCount)
    writer.append(forgotten)
    writer.append(deliveryCount)
    writer.append(time)
    return writer.bytes
  }

  init(_ bytes: [UInt8]) throws(MalformedBytes) {
    var reader = ByteReader(bytes)
    incarnation = try reader.incarnation()
    floor = try reader.read()
    arrivedCount = try reader.read()
    forgotten = try reader.read()
    deliveryCount = try reader.read()
    time = try reader.read()
    try reader.end()
    guard OutboxState.numbers.contains(floor), arrivedCount < OutboxState.numbers.upperBound,
      (firstRemembered..<OutboxState.numbers.upperBound).contains(forgotten)
    else {
      throw MalformedBytes(what: "a number of a sender that cannot be")
    }
  }
}
