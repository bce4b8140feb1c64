/// The channels over which messages with files go, while they are open.
struct DeliveryChannels: Sendable {
  struct Channel: Sendable {
    /// Of a message that the peer takes.
    let frameByteCountMax: Int
    let attachmentCountMax: UInt64
    /// A delivery went on here: worth to dial again at once.
    fileprivate(set) var hasServed = false

    init(frameByteCountMax: Int, attachmentCountMax: UInt64) {
      self.frameByteCountMax = frameByteCountMax
      self.attachmentCountMax = attachmentCountMax
    }
  }

  private var all: [ChannelNumber: Channel] = [:]
  /// Oldest first.
  private(set) var numbers: [ChannelNumber] = []

  subscript(number: ChannelNumber) -> Channel? { all[number] }

  var isEmpty: Bool { all.isEmpty }
  /// Offers go over this one.
  var newest: ChannelNumber? { numbers.last }

  mutating func open(_ number: ChannelNumber, _ channel: Channel) {
    precondition(all[number] == nil, "the number of a channel is used once")
    all[number] = channel
    numbers.append(number)
  }

  /// Returns nil for a channel that is not known.
  mutating func close(_ number: ChannelNumber) -> Channel? {
    numbers.removeAll { $0 == number }
    return all.removeValue(forKey: number)
  }

  mutating func served(_ number: ChannelNumber) { all[number]?.hasServed = true }
}
