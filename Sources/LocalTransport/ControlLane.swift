package import Foundation
package import NIOCore
package import NIOPosix
import NIOSSL
package import ServiceWire
import Synchronization

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

/// One TLS 1.3 connection between two apps, over a socket that a broker made: frames go both ways once each side has shown the certificate
/// that the other expects. It does not know what messages mean, but for `Goodbye`.
///
/// All of its work but encoding is done on one event loop. It lives until it is closed, whether somebody holds it or not.
package final class ControlLane: Sendable {
  package enum Role: Sendable, CaseIterable {
    /// The TLS client.
    case dialler
    /// The TLS server.
    case acceptor
  }

  let limits: ControlLaneLimits
  let events: ControlLaneEvents
  let outbox: Mutex<LaneOutbox>
  private let eventLoop: any EventLoop
  private let connection: NIOLoopBoundBox<LaneConnection?>

  /// The event loops of the process's lanes.
  package static var eventLoops: MultiThreadedEventLoopGroup { .singleton }

  private init(_ eventLoop: any EventLoop, _ limits: ControlLaneLimits, _ events: ControlLaneEvents) {
    self.eventLoop = eventLoop
    self.limits = limits
    self.events = events
    outbox = Mutex(LaneOutbox(frameByteCountMax: limits.frameByteCountMax))
    connection = .makeEmptyBox(valueType: LaneConnection.self, eventLoop: eventLoop)
  }

  /// Begins TLS on a connected stream socket, which belongs to the lane from now on, also when this throws. `certificate` (DER) is the leaf
  /// of `key`, `authority` the pinned certificate (DER), and the peer must be `appID` of the same activation user.
  ///
  /// Throws `IdentityError`, and the TLS library's errors, for a key or a certificate that cannot be used. Everything else is told by
  /// `closed`.
  @discardableResult
  package static func open(
    descriptor: Int32, role: Role, key: AppKey, certificate: Data, authority: Data, expecting appID: String,
    activationUser: String, limits: ControlLaneLimits = ControlLaneLimits(), events: ControlLaneEvents,
    on eventLoops: any EventLoopGroup = ControlLane.eventLoops
  ) throws -> ControlLane {
    let check: PeerCheck
    let context: NIOSSLContext
    do {
      check = try PeerCheck(authority: authority, appID: appID, activationUser: activationUser)
      context = try LaneTLS.context(role, key: key, certificate: certificate, authority: authority)
    } catch {
      close(descriptor: descriptor)
      throw error
    }
    let lane = ControlLane(eventLoops.next(), limits, events)
    // The event loop would stop the process for a descriptor that it cannot wait for.
    guard isStreamSocket(descriptor) else {
      close(descriptor: descriptor)
      lane.didNotBegin("the descriptor is no stream socket")
      return lane
    }
    ClientBootstrap(group: lane.eventLoop).channelInitializer { channel in
      channel.eventLoop.makeCompletedFuture {
        let connection = LaneConnection(lane)
        try connection.build(channel.pipeline.syncOperations, role, context, check)
        lane.connection.value = connection
      }
    }.withConnectedSocket(descriptor).whenFailure { error in
      lane.didNotBegin("\(error)")
    }
    return lane
  }

  private static func isStreamSocket(_ descriptor: Int32) -> Bool {
    #if canImport(Glibc)
      let stream = Int32(SOCK_STREAM.rawValue)
    #else
      let stream = SOCK_STREAM
    #endif
    var type: Int32 = 0
    var length = socklen_t(MemoryLayout<Int32>.size)
    return getsockopt(descriptor, SOL_SOCKET, SO_TYPE, &type, &length) == 0 && type == stream
  }

  private static func close(descriptor: Int32) {
    #if canImport(Glibc)
      _ = Glibc.close(descriptor)
    #elseif canImport(Musl)
      _ = Musl.close(descriptor)
    #elseif canImport(Darwin)
      _ = Darwin.close(descriptor)
    #endif
  }

  // MARK: Sending

  /// Queues the messages, as one batch, after all that this thread sent before. What is sent before the lane opens is kept until then; what
  /// is sent after its end is lost, like what was under way at the end.
  ///
  /// Throws `frameTooLong` for a message that is longer than the peer takes, `malformed` for one that cannot be encoded: then none of
  /// them is sent.
  package func send(_ messages: [WireChannelMessage]) throws(ProtocolFault) {
    let byteCountMax = outbox.withLock { $0.frameByteCountMax }
    var batch = ByteBuffer()
    for message in messages { batch.writeBytes(try message.frame(byteCountMax: byteCountMax)) }
    guard outbox.withLock({ $0.append(&batch) }) else { return }
    onEventLoop { $0.drain() }
  }

  /// How many bytes wait to be written.
  package var queuedByteCount: Int { outbox.withLock { $0.queuedByteCount } }

  /// The longest frame that the peer takes: what its `Hello` says. Until then it is the limit for what is received.
  package func limitSentFrames(to byteCount: Int) {
    outbox.withLock { $0.frameByteCountMax = byteCount }
  }

  // MARK: The end

  /// Says goodbye if the connection takes it at once, and closes it: what waits to be written is lost. `closed` follows. `detail` is
  /// a limit's name or a path, as the page says for the fault.
  package func close(_ fault: ProtocolFault, detail: String = "") {
    onEventLoop { $0.end(ControlLaneEnd(.here, fault, detail), goodbyeDetail: detail) }
  }

  /// Does `work` at once on the event loop, and soon elsewhere, in the order of the calls. Not at all once the lane has ended.
  private func onEventLoop(_ work: @escaping @Sendable (LaneConnection) -> Void) {
    if eventLoop.inEventLoop {
      if let connection = connection.value { work(connection) }
    } else {
      eventLoop.execute { if let connection = self.connection.value { work(connection) } }
    }
  }

  /// On the event loop.
  func didClose(_ end: ControlLaneEnd) {
    outbox.withLock { $0.close() }
    connection.value = nil
    events.closed(self, end)
  }

  private func didNotBegin(_ detail: String) {
    eventLoop.execute {
      // A connection that began has told its end itself.
      guard self.outbox.withLock({ !$0.isClosed }) else { return }
      self.didClose(ControlLaneEnd(.here, .connectionLost, detail))
    }
  }
}
