import Foundation
import ServiceWire
import Synchronization
import Testing
import UnixSockets

@testable import LocalTransport

/// Tickets and the sockets that come with them.
@Suite(.timeLimit(.minutes(10)))
struct DescriptorLaneTests {
  enum Event: Equatable, Sendable {
    case received(ticket: Data, control: ino_t, bulk: ino_t)
    case closed(ProtocolFault)
  }

  /// What a receiver tells, in order. The sockets that it is given are closed before they are told of.
  final class Events: Sendable {
    let stream: AsyncStream<Event>
    private let continuation: AsyncStream<Event>.Continuation

    init() { (stream, continuation) = AsyncStream.makeStream() }

    func receiver(_ descriptor: Int32) throws -> DescriptorReceiver {
      try DescriptorReceiver(
        descriptor: descriptor,
        received: { ticket, control, bulk in
          let event = Event.received(ticket: ticket, control: inode(control), bulk: inode(bulk))
          close(control)
          close(bulk)
          self.continuation.yield(event)
        },
        closed: { self.continuation.yield(.closed($0)) })
    }

    func next() async -> Event? {
      for await event in stream { return event }
      return nil
    }
  }

  static func ticket(_ byte: UInt8) -> Data { Data(repeating: byte, count: 32) }

  @Test func carriesTicketsWithTheirSocketsInOrder() async throws {
    let lane = try SocketPair()
    let sender = DescriptorSender(descriptor: lane.near)
    let events = Events()
    let pairs = try (0..<3).map { _ in try SocketPair() }
    let inodes = pairs.map { (inode($0.near), inode($0.far)) }
    for (number, pair) in pairs.enumerated() {
      #expect(sender.send(ticket: Self.ticket(UInt8(number)), control: pair.near, bulk: pair.far))
    }
    let receiver = try events.receiver(lane.far)
    for (number, inodes) in inodes.enumerated() {
      #expect(
        await events.next()
          == .received(ticket: Self.ticket(UInt8(number)), control: inodes.0, bulk: inodes.1))
    }
    #expect(pairs.allSatisfy { !$0.isNearOpen })
    sender.close()
    #expect(await events.next() == .closed(.connectionLost))
    receiver.close()
    let more = try SocketPair()
    #expect(!sender.send(ticket: Self.ticket(9), control: more.near, bulk: more.far))
    #expect(!more.isNearOpen)
  }

  @Test func saysThatThereIsNoRoomAndKeepsNothingOpen() async throws {
    let lane = try SocketPair()
    let sender = DescriptorSender(descriptor: lane.near)
    var sent = 0
    while true {
      let pair = try SocketPair()
      let wasSent = sender.send(ticket: Self.ticket(1), control: pair.near, bulk: pair.far)
      if wasSent {
        sent += 1
      } else {
        #expect(!pair.isNearOpen)
        break
      }
    }
    #expect(sent > 16)
    #if os(Linux)
      #expect(sent < 100)
    #endif
    let events = Events()
    let receiver = try events.receiver(lane.far)
    for _ in 0..<sent {
      guard case .received? = await events.next() else {
        Issue.record("fewer than were sent")
        return
      }
    }
    let pair = try SocketPair()
    let inodes = (inode(pair.near), inode(pair.far))
    #expect(sender.send(ticket: Self.ticket(2), control: pair.near, bulk: pair.far))
    #expect(
      await events.next() == .received(ticket: Self.ticket(2), control: inodes.0, bulk: inodes.1))
    receiver.close()
    #expect(await events.next() == .closed(.noError))
  }

  /// 32 bytes with as many descriptors, and one byte and the end.
  @Test(
    arguments: [(32, 0), (32, 1), (32, 3), (33, 0)].map { ($0, ProtocolFault.unexpectedDescriptors) } + [
      ((31, 2), .connectionLost), ((0, 0), .connectionLost),
    ])
  func endsOnWhatIsNoTicketWithTwoSockets(message: (Int, Int), fault: ProtocolFault) async throws {
    let lane = try SocketPair()
    let pair = try SocketPair()
    do {
      let connection = try UnixConnection.adopting(lane.near)
      var descriptors = DescriptorList()
      for _ in 0..<message.1 { descriptors.append(try Descriptor(adopting: dup(pair.near))) }
      let bytes = [UInt8](repeating: 1, count: message.0)
      if !bytes.isEmpty {
        let sent = try bytes.withUnsafeBytes { try connection.sendIfReady($0, descriptors: descriptors) }
        #expect(sent == bytes.count)
      }
    }
    close(pair.near)
    let events = Events()
    let receiver = try events.receiver(lane.far)
    #expect(await events.next() == .closed(fault))
    #expect(!pair.isNearOpen)
    receiver.close()
    pair.closeFar()
  }

  @Test func takesNoDescriptorThatIsNoSocket() throws {
    #expect(throws: SocketError.notASocket(path: nil)) {
      try Events().receiver(open("/dev/null", O_RDWR))
    }
    let sender = DescriptorSender(descriptor: open("/dev/null", O_RDWR))
    let pair = try SocketPair()
    #expect(!sender.send(ticket: Self.ticket(1), control: pair.near, bulk: pair.far))
    #expect(!pair.isNearOpen)
  }
}

func inode(_ descriptor: Int32) -> ino_t {
  var status = stat()
  return fstat(descriptor, &status) == 0 ? status.st_ino : 0
}
