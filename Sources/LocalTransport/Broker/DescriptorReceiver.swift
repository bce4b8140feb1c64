package import Foundation
package import ServiceWire
import Synchronization
import UnixSockets

/// An app's end of a descriptor lane: each message is a ticket with exactly two sockets, and anything else ends the lane.
///
/// It waits on a thread of its own, until `close` or the broker's end.
package final class DescriptorReceiver: Sendable {
  /// Of the ticket that names an introduction.
  package static let ticketByteCount = 32
  /// The control lane's socket and the bulk lane's.
  package static let descriptorCount = 2

  private let end: End

  private final class End: Sendable {
    let connection: UnixConnection
    let isClosing = Atomic(false)

    init(_ connection: consuming UnixConnection) { self.connection = connection }
  }

  /// Takes over one end of a socket pair. `received` owns the two descriptors that it is given: the control lane's, then the bulk
  /// lane's. `closed` comes last, once: with `noError` after `close`, `connectionLost` when the broker's end closed,
  /// `unexpectedDescriptors` when something else than a ticket with two descriptors came, or this process had no room for them.
  /// Both are called on the lane's thread.
  ///
  /// Throws `SocketError` for what is no Unix stream socket, and when the system gives no thread; the descriptor is closed then.
  package init(
    descriptor: Int32, received: @escaping @Sendable (Data, Int32, Int32) -> Void,
    closed: @escaping @Sendable (ProtocolFault) -> Void
  ) throws {
    let end = End(try UnixConnection.adopting(descriptor))
    self.end = end
    try DetachedThread.start("descriptors") {
      let fault = Self.receive(over: end.connection, received)
      end.connection.shutdown()
      closed(end.isClosing.load(ordering: .acquiring) ? .noError : fault)
    }
  }

  /// Ends the lane, from any thread; `closed` follows. Does nothing the second time.
  package func close() {
    end.isClosing.store(true, ordering: .releasing)
    end.connection.shutdown()
  }

  /// Until the end, whose reason it returns.
  private static func receive(
    over connection: borrowing UnixConnection, _ received: (Data, Int32, Int32) -> Void
  ) -> ProtocolFault {
    let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: ticketByteCount, alignment: 1)
    defer { buffer.deallocate() }
    do throws(SocketError) {
      while true {
        var byteCount = 0
        var descriptors: [Int32] = []
        defer { for descriptor in descriptors { _ = try? Descriptor(adopting: descriptor) } }
        // The system may hand a message over in parts.
        repeat {
          var part = try connection.receive(
            into: UnsafeMutableRawBufferPointer(rebasing: buffer[byteCount...]),
            descriptorsMax: descriptorCount - descriptors.count, deadline: nil)
          guard part.byteCount > 0 else { return .connectionLost }
          byteCount += part.byteCount
          while let descriptor = part.descriptors.popFirst() { descriptors.append(descriptor.take()) }
        } while byteCount < ticketByteCount
        guard descriptors.count == descriptorCount else { return .unexpectedDescriptors }
        let (control, bulk) = (descriptors[0], descriptors[1])
        descriptors = []
        received(Data(buffer), control, bulk)
      }
    } catch .tooManyDescriptors, .messageTruncated {
      return .unexpectedDescriptors
    } catch {
      return .connectionLost
    }
  }
}
