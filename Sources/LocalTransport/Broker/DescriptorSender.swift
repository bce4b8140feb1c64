package import Foundation
import Locks
import UnixSockets

/// The broker's end of a descriptor lane: each ticket goes out with the two sockets of its introduction, as one message.
package final class DescriptorSender: Sendable {
  private let connection: Guarded<UnixConnection?>

  /// Room for about 64 tickets on Linux: descriptors that nobody took yet count against a limit of the user.
  private static let bufferByteCount = 24 << 10

  /// Takes over one end of a socket pair. A descriptor that is no Unix stream socket is closed, and nothing can be sent.
  package init(descriptor: Int32) {
    let connection = try? UnixConnection.adopting(descriptor)
    if let counts = try? connection?.bufferByteCounts() {
      _ = try? connection?.setBufferByteCounts(
        BufferByteCounts(send: Self.bufferByteCount, receive: counts.receive))
    }
    self.connection = Guarded(connection)
  }

  /// Sends a ticket with two sockets, which are closed here whatever comes of it. False when the lane has no room for them now or has
  /// ended: then nothing was sent. Does not block.
  package func send(ticket: Data, control: Int32, bulk: Int32) -> Bool {
    precondition(
      ticket.count == DescriptorReceiver.ticketByteCount,
      "a ticket has \(DescriptorReceiver.ticketByteCount) bytes")
    let bytes = UnsafeMutableRawBufferPointer.allocate(byteCount: ticket.count, alignment: 1)
    defer { bytes.deallocate() }
    bytes.copyBytes(from: ticket)
    return connection.withLock { connection in
      var descriptors = DescriptorList()
      for number in [control, bulk] {
        if let descriptor = try? Descriptor(adopting: number) { descriptors.append(descriptor) }
      }
      guard descriptors.count == DescriptorReceiver.descriptorCount else { return false }
      let byteCount = try? connection?.sendIfReady(UnsafeRawBufferPointer(bytes), descriptors: descriptors)
      if byteCount == bytes.count { return true }
      // What is left cannot follow without waiting, and half a ticket makes no sense of what comes after it.
      if byteCount != nil { connection = nil }
      return false
    }
  }

  /// Closes the lane. Does nothing the second time.
  package func close() { connection.withLock { $0 = nil } }
}

extension UnixConnection {
  /// Takes over a number that nobody else closes.
  static func adopting(_ number: Int32) throws(SocketError) -> UnixConnection {
    try UnixConnection(adopting: Descriptor(adopting: number))
  }
}
