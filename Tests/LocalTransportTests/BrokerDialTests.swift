import Foundation
import ServiceWire
import SodiumPrimitives
import TestSupport
import Testing
import UnixSockets

@testable import LocalTransport

/// What comes before the handshake on the way to a broker.
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

  /// The broker's key, in the file beside the socket.
  static func showKey(in folder: TemporaryDirectory) throws -> Data {
    let key = Data(try KeyPair().publicKey)
    try BrokerKeyFile.contents(key).write(to: URL(filePath: folder["broker.key.pub"]))
    return key
  }

  @Test(arguments: [false, true]) func receivesTheDescriptorLane(isPinned: Bool) async throws {
    let folder = TemporaryDirectory()
    let key = try Self.showKey(in: folder)
    let listener = try UnixListener(path: folder["broker"])
    let lane = try SocketPair()
    let laneInode = inode(lane.near)

    let path = folder["broker"]
    let dialled = ThreadCall { try BrokerDial.dial(path: path, pinned: isPinned ? key : nil) }
    let connection = try Self.serve(listener, bytes: [0], descriptors: [lane.near])
    let result = try await dialled.value()
    #expect(inode(result.descriptorLane) == laneInode)
    #expect(result.brokerKey == key)
    // What follows is left to the handshake.
    let sent = try [UInt8]([96, 0]).withUnsafeBytes { try connection.sendIfReady($0) }
    #expect(sent == 2)
    var bytes: [UInt8] = [0, 0, 0]
    #expect(recv(result.socket, &bytes, 3, 0) == 2 && bytes == [96, 0, 0])
    for descriptor in [result.socket, result.descriptorLane] { #expect(close(descriptor) == 0) }
    lane.closeFar()
  }

  // MARK: The broker's key

  enum Shown: CaseIterable, Sendable { case nothing, noKey, anotherKey }

  /// Nothing of the connection is left open.
  @Test(arguments: [false, true], Shown.allCases)
  func trustsNoBrokerWhoseKeyIsNotKnownOrAnotherOne(isPinned: Bool, shown: Shown) async throws {
    let folder = TemporaryDirectory()
    var pinned: Data?
    if isPinned { pinned = Data(try KeyPair().publicKey) }
    switch shown {
    case .nothing: break
    case .noKey: try Data("no key\n".utf8).write(to: URL(filePath: folder["broker.key.pub"]))
    case .anotherKey: _ = try Self.showKey(in: folder)
    }
    let listener = try UnixListener(path: folder["broker"])
    let lane = try SocketPair()
    let path = folder["broker"]
    let dialled = ThreadCall { [pinned] in try BrokerDial.dial(path: path, pinned: pinned) }
    _ = try Self.serve(listener, bytes: [0], descriptors: [lane.near])
    // What is pinned is enough, when nothing else is shown, and at a first meeting what is shown.
    switch (isPinned, shown) {
    case (true, .anotherKey):
      await #expect(throws: ProtocolFault.brokerNotTrusted) { _ = try await dialled.value() }
    case (false, .nothing), (false, .noKey):
      await #expect(throws: BrokerKeyError.missing(path: path + ".key.pub")) {
        _ = try await dialled.value()
      }
    default:
      let result = try await dialled.value()
      #expect(result.brokerKey == pinned ?? BrokerKeyFile.read(besideSocket: path))
      for descriptor in [result.socket, result.descriptorLane] { #expect(close(descriptor) == 0) }
    }
    #expect(!lane.isNearOpen)
    lane.closeFar()
  }

  // MARK: What comes first

  @Test(
    arguments: [
      ([0], 0, .unexpectedDescriptors), ([0], 2, .unexpectedDescriptors), ([1], 1, .malformed),
      ([96, 0], 0, .unexpectedDescriptors), ([], 0, .connectionLost),
    ] as [([UInt8], Int, ProtocolFault)])
  func refusesABrokerThatBeginsOtherwise(bytes: [UInt8], count: Int, fault: ProtocolFault) async throws {
    let folder = TemporaryDirectory()
    let listener = try UnixListener(path: folder["broker"])
    let pair = try SocketPair()
    let path = folder["broker"]
    let dialled = ThreadCall { try BrokerDial.dial(path: path, pinned: nil) }
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
    let dialled = ThreadCall { try BrokerDial.dial(path: path, pinned: nil) }
    _ = try Self.serve(listener, bytes: [0], descriptors: [open("/dev/null", O_RDWR)])
    await #expect(throws: ProtocolFault.unexpectedDescriptors) { _ = try await dialled.value() }
  }

  /// The listener's queue takes the connection, and nobody accepts it.
  @Test func waitsNoLongerThanItMay() throws {
    let folder = TemporaryDirectory()
    let listener = try UnixListener(path: folder["broker"])
    #expect(throws: ProtocolFault.timedOut) {
      try BrokerDial.dial(path: folder["broker"], pinned: nil, timeMax: .milliseconds(50))
    }
    listener.close()
    #expect(BrokerDial.timeMax == .seconds(10))
  }

  @Test func refusesADirectoryThatIsOpenToOthers() throws {
    let folder = TemporaryDirectory()
    let listener = try UnixListener(path: folder["broker"])
    try #require(chmod(folder.path, 0o750) == 0)
    #expect(throws: SocketError.unsafeDirectory(path: folder.path, fault: .openToOthers)) {
      try BrokerDial.dial(path: folder["broker"], pinned: nil)
    }
    listener.close()
  }

  @Test func tellsThatNobodyAnswers() throws {
    let folder = TemporaryDirectory()
    #expect(throws: SocketError.nobodyAnswers(path: folder["broker"])) {
      try BrokerDial.dial(path: folder["broker"], pinned: nil)
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
