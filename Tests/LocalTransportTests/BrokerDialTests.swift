import Foundation
import ServiceWire
import TestSupport
import Testing
import UnixSockets

@testable import LocalTransport

/// What comes before TLS on the way to a broker.
@Suite(.timeLimit(.minutes(10)))
struct BrokerDialTests {
  /// Accepts one connection and sends bytes with descriptors over it.
  static func serve(
    _ listener: consuming UnixListener, bytes: [UInt8], descriptors numbers: [Int32]
  ) throws -> UnixConnection {
    let connection = try listener.accept(deadline: .now + .seconds(30))
    var descriptors = DescriptorList()
    for number in numbers { descriptors.append(try Descriptor(adopting: number)) }
    if !bytes.isEmpty {
      let sent = try bytes.withUnsafeBytes { try connection.sendIfReady($0, descriptors: descriptors) }
      #expect(sent == bytes.count)
    }
    return connection
  }

  @Test func receivesTheDescriptorLane() async throws {
    let folder = TemporaryDirectory()
    let listener = try UnixListener(path: folder["broker"])
    let lane = try SocketPair()
    let laneInode = inode(lane.near)

    let path = folder["broker"]
    let dialled = ThreadCall { try BrokerDial.dial(path: path) }
    let connection = try Self.serve(listener, bytes: [0], descriptors: [lane.near])
    let (socket, descriptorLane) = try await dialled.value()
    #expect(inode(descriptorLane) == laneInode)
    // What follows is left to TLS.
    let sent = try [UInt8]([22, 3]).withUnsafeBytes { try connection.sendIfReady($0) }
    #expect(sent == 2)
    var bytes: [UInt8] = [0, 0, 0]
    #expect(recv(socket, &bytes, 3, 0) == 2 && bytes == [22, 3, 0])
    for descriptor in [socket, descriptorLane] { #expect(close(descriptor) == 0) }
    lane.closeFar()
  }

  @Test(
    arguments: [
      ([0], 0, .unexpectedDescriptors), ([0], 2, .unexpectedDescriptors), ([1], 1, .malformed),
      ([22, 3], 0, .unexpectedDescriptors), ([], 0, .connectionLost),
    ] as [([UInt8], Int, ProtocolFault)])
  func refusesABrokerThatBeginsOtherwise(bytes: [UInt8], count: Int, fault: ProtocolFault) async throws {
    let folder = TemporaryDirectory()
    let listener = try UnixListener(path: folder["broker"])
    let pair = try SocketPair()
    let path = folder["broker"]
    let dialled = ThreadCall { try BrokerDial.dial(path: path) }
    do { _ = try Self.serve(listener, bytes: bytes, descriptors: (0..<count).map { _ in dup(pair.near) }) }
    close(pair.near)
    await #expect(throws: fault) { _ = try await dialled.value() }
    #expect(!pair.isNearOpen)
    pair.closeFar()
  }

  @Test func takesNoOtherDescriptorForALane() async throws {
    let folder = TemporaryDirectory()
    let listener = try UnixListener(path: folder["broker"])
    let path = folder["broker"]
    let dialled = ThreadCall { try BrokerDial.dial(path: path) }
    _ = try Self.serve(listener, bytes: [0], descriptors: [open("/dev/null", O_RDWR)])
    await #expect(throws: ProtocolFault.unexpectedDescriptors) { _ = try await dialled.value() }
  }

  /// The listener's queue takes the connection, and nobody accepts it.
  @Test func waitsNoLongerThanItMay() throws {
    let folder = TemporaryDirectory()
    let listener = try UnixListener(path: folder["broker"])
    #expect(throws: ProtocolFault.timedOut) {
      try BrokerDial.dial(path: folder["broker"], timeMax: .milliseconds(50))
    }
    listener.close()
    #expect(BrokerDial.timeMax == .seconds(10))
  }

  @Test func refusesADirectoryThatIsOpenToOthers() throws {
    let folder = TemporaryDirectory()
    let listener = try UnixListener(path: folder["broker"])
    try #require(chmod(folder.path, 0o750) == 0)
    #expect(throws: SocketError.unsafeDirectory(path: folder.path, fault: .openToOthers)) {
      try BrokerDial.dial(path: folder["broker"])
    }
    listener.close()
  }

  @Test func tellsThatNobodyAnswers() throws {
    let folder = TemporaryDirectory()
    #expect(throws: SocketError.nobodyAnswers(path: folder["broker"])) {
      try BrokerDial.dial(path: folder["broker"])
    }
  }
}

/// A call that blocks, on a thread of its own from now on.
struct ThreadCall<Value: Sendable>: Sendable {
  private let stream: AsyncThrowingStream<Value, any Error>

  init(_ call: @escaping @Sendable () throws -> Value) {
    let (stream, continuation) = AsyncThrowingStream<Value, any Error>.makeStream()
    self.stream = stream
    Thread.detachNewThread {
      continuation.yield(with: Result { try call() })
      continuation.finish()
    }
  }

  func value() async throws -> Value {
    for try await value in stream { return value }
    throw CancellationError()
  }
}
