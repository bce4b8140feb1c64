import Foundation
import SodiumPrimitives

/// The channels with one peer: which are open and have room, and over which the peer lives.
struct ExchangeChannels: Sendable {
  struct Channel: Sendable {
    let ticket: Data
    let opened: UInt64
    fileprivate var lastHeard: UInt64
    fileprivate var ping: UInt64?
    fileprivate(set) var peerProcess: Identifier?
    fileprivate(set) var peerFrameByteCountMax = 0
    fileprivate(set) var peerAttachmentCountMax: UInt64 = 0
    /// Bytes put out since there was room.
    fileprivate var sentByteCount = 0
    /// More waits to be written than the limit.
    fileprivate(set) var isFull = false
    fileprivate var heardWhileFullCount = 0

    /// Whether the peer's `Hello` was taken.
    var isOpen: Bool { peerProcess != nil }

    fileprivate mutating func setFull(_ isFull: Bool) {
      self.isFull = isFull
      heardWhileFullCount = 0
      sentByteCount = 0
    }
  }

  enum Liveness {
    case lives, hasToAnswer, isOverdue
  }

  private let limits: ExchangeLimits
  private var all: [ChannelNumber: Channel] = [:]
  /// The open channel whose `Hello` came last.
  private(set) var newest: ChannelNumber?

  var queuedByteCountMax: Int
  var fullMessageCountMax: Int

  init(limits: ExchangeLimits) {
    self.limits = limits
    queuedByteCountMax = limits.queuedByteCountMax
    fullMessageCountMax = limits.fullChannelMessageCountMax
  }

  subscript(number: ChannelNumber) -> Channel? { all[number] }

  var numbers: [ChannelNumber] { Array(all.keys) }
  var count: Int { all.count }
  var openCount: Int { all.values.count { $0.isOpen } }
  var isEmpty: Bool { all.isEmpty }

  func isOpen(_ number: ChannelNumber) -> Bool { all[number]?.isOpen == true }

  func numbers(of tickets: [Data]) -> [ChannelNumber] {
    all.filter { tickets.contains($0.value.ticket) }.map(\.key)
  }

  /// Adds a channel. Returns false if there are too many.
  mutating func insert(_ number: ChannelNumber, ticket: Data, now: UInt64) -> Bool {
    precondition(all[number] == nil, "the number of a channel is used once")
    guard all.count < limits.channelCountMax else { return false }
    all[number] = Channel(ticket: ticket, opened: now, lastHeard: now)
    return true
  }

  mutating func remove(_ number: ChannelNumber) -> Channel? {
    guard let removed = all.removeValue(forKey: number) else { return nil }
    if newest == number {
      newest = all.filter { $0.value.isOpen }.max { $0.value.opened < $1.value.opened }?.key
    }
    return removed
  }

  /// Opens the channel. Returns the peer's process; throws what is wrong with the `Hello`.
  mutating func take(
    _ hello: WireChannelHello, of peerAppID: String, _ number: ChannelNumber
  ) throws(ProtocolViolation) -> Identifier {
    guard var channel = all[number], !channel.isOpen else {
      throw ProtocolViolation(fault: .unexpectedMessage)
    }
    guard hello.version >= Exchange.versionMin else { throw ProtocolViolation(fault: .versionNotSupported) }
    guard hello.ticket == channel.ticket else { throw ProtocolViolation(fault: .ticketRefused) }
    guard hello.appID.utf8.elementsEqual(peerAppID.utf8) else {
      throw ProtocolViolation(fault: .certificateNotFound)
    }
    guard let process = Identifier(exactly: hello.process), Int(hello.requests) <= ExchangeLimits.creditMax,
      hello.frameByteCount >= ExchangeLimits.frameByteCountMin, hello.slots <= BulkSlots.countMax
    else { throw ProtocolViolation(fault: .malformed) }
    channel.peerProcess = process
    channel.peerFrameByteCountMax = Int(hello.frameByteCount)
    channel.peerAttachmentCountMax = hello.attachments
    all[number] = channel
    newest = number
    return process
  }

  // MARK: Life

  /// A message came. Returns false if the peer does not read what waits for it, and sent too much
  /// meanwhile.
  mutating func hear(_ number: ChannelNumber, now: UInt64) -> Bool {
    guard var channel = all[number] else { return true }
    if channel.isFull {
      guard channel.heardWhileFullCount < fullMessageCountMax else { return false }
      channel.heardWhileFullCount += 1
    }
    channel.lastHeard = now
    channel.ping = nil
    all[number] = channel
    return true
  }

  /// Whether a channel's peer lives, and whether it has to answer a ping from now on. While `isIdle`,
  /// nothing has to come over an open channel.
  mutating func check(_ number: ChannelNumber, now: UInt64, isIdle: Bool) -> Liveness {
    guard let channel = all[number] else { return .lives }
    guard channel.isOpen else {
      return now >= channel.opened + limits.beginningTime ? .isOverdue : .lives
    }
    guard !isIdle, now >= channel.lastHeard + limits.idleTime else { return .lives }
    if let ping = channel.ping { return now >= ping + limits.idleTime ? .isOverdue : .lives }
    all[number]?.ping = now
    return .hasToAnswer
  }

  // MARK: Room

  mutating func setFull(_ number: ChannelNumber, _ isFull: Bool) { all[number]?.setFull(isFull) }

  /// Counts what was put out. The channel is full when too much was: then `awaitRoom` comes out.
  mutating func didSend(_ byteCount: Int, on number: ChannelNumber, _ outputs: inout [ExchangeOutput]) {
    all[number]?.sentByteCount += byteCount
    guard let channel = all[number], channel.sentByteCount > queuedByteCountMax else { return }
    all[number]?.setFull(true)
    outputs.append(.awaitRoom(on: number))
  }
}
