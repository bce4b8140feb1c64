package import Foundation
import ServiceWire
import UnixSockets

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

/// How an app, or a tool, reaches the broker.
package enum BrokerDial {
  /// How long the broker may take to accept a connection and to send what comes first over it.
  package static let timeMax: Duration = .seconds(10)

  /// Checks the socket's directory, dials, checks whose process answers, and receives the broker's first byte with the end of the
  /// descriptor lane. The handshake begins after that, with `brokerKey`. The caller owns both descriptors. Blocks, at most `timeMax`: for a thread of its own.
  ///
  /// `pinned` is the broker's public key, when one is known; else the key beside the socket is taken.
  ///
  /// Throws `SocketError` of the directory and of the dial (`unsafeDirectory`, `nobodyAnswers`, `pathTooLong`, `notASocket`, `timedOut`,
  /// `callFailed`), `BrokerKeyError` when no key is pinned and none is beside the socket, and `ProtocolFault`: `brokerNotTrusted` when another user's process answers, or the key
  /// beside the socket differs from `pinned`, `timedOut` when it sends nothing in time, `connectionLost` when it closes instead,
  /// `unexpectedDescriptors` and `malformed` when it sends something else.
  package static func dial(
    path: String, pinned: Data?, timeMax: Duration = BrokerDial.timeMax
  ) throws -> Dialled {
    let deadline = ContinuousClock.now + timeMax
    let directory = SocketDirectory.directory(of: path)
    // No broker of this user has made it yet.
    if access(directory, F_OK) != 0, errno == ENOENT { throw SocketError.nobodyAnswers(path: path) }
    try SocketDirectory.check(directory, .closedToOthers)
    let connection = try UnixConnection.dial(path: path, deadline: deadline)
    guard try connection.peerCredentials().user == geteuid() else { throw ProtocolFault.brokerNotTrusted }
    let lane = try receiveLane(over: connection, deadline)
    // The broker has written it by now.
    let shown = BrokerKeyFile.read(besideSocket: path)
    if let pinned, let shown, pinned != shown { throw ProtocolFault.brokerNotTrusted }
    guard let key = pinned ?? shown else {
      throw BrokerKeyError.missing(path: BrokerKeyFile.path(besideSocket: path))
    }
    return Dialled(
      socket: connection.takeDescriptor().take(), descriptorLane: lane.takeDescriptor().take(), brokerKey: key
    )
  }

  package struct Dialled: Sendable {
    package let socket: Int32
    package let descriptorLane: Int32
    package let brokerKey: Data
  }

  private static func receiveLane(
    over connection: borrowing UnixConnection, _ deadline: ContinuousClock.Instant
  ) throws(ProtocolFault) -> UnixConnection {
    var byte: UInt8 = 0xff
    do throws(SocketError) {
      var received = try withUnsafeMutableBytes(of: &byte) { bytes throws(SocketError) in
        try connection.receive(into: bytes, descriptorsMax: 1, deadline: deadline)
      }
      guard received.byteCount == 1 else { throw .closed }
      guard let descriptor = received.descriptors.popFirst() else { throw .notASocket(path: nil) }
      let lane = try UnixConnection(adopting: descriptor)
      if byte == 0 { return lane }
    } catch .timedOut {
      throw .timedOut
    } catch .tooManyDescriptors, .messageTruncated, .notASocket {
      throw .unexpectedDescriptors
    } catch {
      throw .connectionLost
    }
    throw .malformed
  }
}
