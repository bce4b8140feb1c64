import NIOCore
import UnixSockets

/// A connected socket for NIO's pipeline, on a ``TurnLoop``: it is written by whoever has the turn, and read by the loop's reader.
///
/// In place of NIO's own, which needs a thread that waits for many sockets: there each message from another thread, and each answer, goes through one more.
final class SocketChannel: Channel, ChannelCore, @unchecked Sendable {
  // Invariant: what changes is touched in a turn only; the socket is also read by the reader outside of its turns, who alone closes it.
  let loop: TurnLoop
  let closePromise: EventLoopPromise<Void>
  let allocator = ByteBufferAllocator()
  private var _pipeline: ChannelPipeline?
  private(set) var socket: OpenSocket?

  private var hasBegun = false
  /// Nothing is read or written any more; the reader closes the socket.
  private var isClosing = false
  /// A write failed: what the other side has said before is read, and then it is closed.
  private var isBroken = false
  /// Of what it has said before. A socket's buffer is no more.
  private var readsLeftWhenBroken = 16
  /// The reader looks for it since the write failed.
  private var isReadingRest = false
  private enum Output { case open, closing, closed }
  private var output = Output.open
  private var waiting: [(bytes: ByteBuffer, promise: EventLoopPromise<Void>?)] = []
  /// Of those, to be written.
  private var flushedCount = 0
  private var isFlushing = false

  /// The owner of a socket, which is closed with it.
  final class OpenSocket: Sendable {
    let connection: UnixConnection
    init(_ connection: consuming UnixConnection) { self.connection = connection }
  }

  init(_ connection: consuming UnixConnection, on loop: TurnLoop) {
    self.loop = loop
    socket = OpenSocket(connection)
    closePromise = loop.makePromise()
    _pipeline = ChannelPipeline(channel: self)
  }

  // MARK: Of a channel

  var eventLoop: any EventLoop { loop }
  var closeFuture: EventLoopFuture<Void> { closePromise.futureResult }
  // Set in the initialiser.
  var pipeline: ChannelPipeline { _pipeline.unsafelyUnwrapped }
  var _channelCore: any ChannelCore { self }
  var parent: (any Channel)? { nil }
  var localAddress: SocketAddress? { nil }
  var remoteAddress: SocketAddress? { nil }
  /// How much waits is the lane's affair.
  var isWritable: Bool { true }
  var isActive: Bool { hasBegun && socket != nil && !isClosing }

  func localAddress0() throws -> SocketAddress { throw ChannelError.operationUnsupported }
  func remoteAddress0() throws -> SocketAddress { throw ChannelError.operationUnsupported }

  // MARK: Options

  private struct Options: NIOSynchronousChannelOptions {
    let channel: SocketChannel

    func setOption<Option: ChannelOption>(_ option: Option, value: Option.Value) throws {
      throw ChannelError.operationUnsupported
    }

    func getOption<Option: ChannelOption>(_ option: Option) throws -> Option.Value {
      let value: Any =
        switch option {
        case is ChannelOptions.Types.AutoReadOption: true
        case is ChannelOptions.Types.AllowRemoteHalfClosureOption: false
        case is ChannelOptions.Types.BufferedWritableBytesOption: channel.waitingByteCount
        default: throw ChannelError.operationUnsupported
        }
      guard let value = value as? Option.Value else { throw ChannelError.operationUnsupported }
      return value
    }
  }

  var syncOptions: (any NIOSynchronousChannelOptions)? { Options(channel: self) }

  func setOption<Option: ChannelOption>(_ option: Option, value: Option.Value) -> EventLoopFuture<Void> {
    loop.makeFailedFuture(ChannelError.operationUnsupported)
  }

  func getOption<Option: ChannelOption>(_ option: Option) -> EventLoopFuture<Option.Value> {
    loop.submit { try Options(channel: self).getOption(option) }
  }

  private var waitingByteCount: Int { waiting.reduce(0) { $0 + $1.bytes.readableBytes } }

  // MARK: The beginning

  /// In a turn, when the pipeline is there.
  func begin() {
    pipeline.syncOperations.fireChannelRegistered()
    hasBegun = true
    pipeline.syncOperations.fireChannelActive()
  }

  func register0(promise: EventLoopPromise<Void>?) { promise?.fail(ChannelError.operationUnsupported) }
  func registerAlreadyConfigured0(promise: EventLoopPromise<Void>?) {
    promise?.fail(ChannelError.operationUnsupported)
  }
  func bind0(to: SocketAddress, promise: EventLoopPromise<Void>?) {
    promise?.fail(ChannelError.operationUnsupported)
  }
  func connect0(to: SocketAddress, promise: EventLoopPromise<Void>?) {
    promise?.fail(ChannelError.operationUnsupported)
  }
  func triggerUserOutboundEvent0(_ event: Any, promise: EventLoopPromise<Void>?) {
    promise?.fail(ChannelError.operationUnsupported)
  }

  // MARK: Reading, in the reader's turns

  /// The reader reads all the time.
  func read0() {}
  func channelRead0(_ data: NIOAny) {}
  func errorCaught0(error: any Error) {}

  func didRead(_ bytes: ByteBuffer) {
    guard !isClosing else { return }
    pipeline.syncOperations.fireChannelRead(NIOAny(bytes))
    pipeline.syncOperations.fireChannelReadComplete()
    if isBroken {
      isReadingRest = true
      readsLeftWhenBroken -= 1
      if readsLeftWhenBroken == 0 { didReadAll() }
    }
  }

  func didReadEnd() { close0(error: ChannelError.eof, mode: .all, promise: nil) }

  func readFailed(_ error: SocketError) {
    guard !isClosing else { return }
    pipeline.syncOperations.fireErrorCaught(error)
    close0(error: error, mode: .all, promise: nil)
  }

  /// There was nothing to read. After a write failed it is the end, when the reader has looked since.
  func didReadAll() {
    guard isBroken else { return }
    guard isReadingRest else {
      isReadingRest = true
      return
    }
    close0(error: ChannelError.eof, mode: .all, promise: nil)
  }

  // MARK: Writing

  func write0(_ data: NIOAny, promise: EventLoopPromise<Void>?) {
    guard !isClosing, !isBroken else {
      promise?.fail(ChannelError.ioOnClosedChannel)
      return
    }
    guard output == .open else {
      promise?.fail(ChannelError.outputClosed)
      return
    }
    waiting.append((unwrapData(data, as: ByteBuffer.self), promise))
  }

  func flush0() {
    flushedCount = waiting.count
    flush()
  }

  /// Of what is written in one go, while the reader waits.
  private static let flushByteCountMax = 1 << 20

  /// Writes what there is room for. What a promise sets off may add more, and is not called within itself.
  func flush() {
    guard !isFlushing else { return }
    isFlushing = true
    defer { isFlushing = false }
    var bytesLeft = Self.flushByteCountMax
    while flushedCount > 0, !isClosing, !isBroken, let socket {
      guard bytesLeft > 0 else {
        loop.isRoomWanted = true
        return
      }
      let count: Int
      do throws(SocketError) {
        count = try waiting[0].bytes.withUnsafeReadableBytes { bytes throws(SocketError) in
          try socket.connection.writeAvailable(bytes)
        }
      } catch {
        return breakOff(error)
      }
      bytesLeft -= count
      waiting[0].bytes.moveReaderIndex(forwardBy: count)
      guard waiting[0].bytes.readableBytes == 0 else {
        loop.isRoomWanted = true
        return
      }
      flushedCount -= 1
      waiting.removeFirst().promise?.succeed()
    }
    loop.isRoomWanted = false
    if output == .closing, !isClosing, !isBroken { endOutput() }
  }

  private func breakOff(_ error: SocketError) {
    isBroken = true
    loop.isRoomWanted = false
    loop.isEnding = true
    failWaiting(error)
  }

  private func failWaiting(_ error: any Error) {
    let left = waiting
    waiting = []
    flushedCount = 0
    for (_, promise) in left { promise?.fail(error) }
  }

  private func endOutput() {
    output = .closed
    socket?.connection.shutdown(.writing)
  }

  // MARK: The end

  /// `output` is ended behind what is flushed. The rest is the reader's work, which comes for it at once.
  func close0(error: any Error, mode: CloseMode, promise: EventLoopPromise<Void>?) {
    guard !isClosing else {
      promise?.fail(ChannelError.alreadyClosed)
      return
    }
    switch mode {
    case .output:
      if output == .open { output = flushedCount > 0 ? .closing : .closed }
      if output == .closed { endOutput() }
      promise?.succeed()
    case .input: promise?.fail(ChannelError.operationUnsupported)
    case .all:
      isClosing = true
      loop.isRoomWanted = false
      loop.isEnding = true
      failWaiting(error)
      if let promise { closeFuture.cascade(to: promise) }
    }
  }

  /// In the reader's turn: closes the socket when it is time for it.
  func closeIfEnding() {
    guard isClosing, socket != nil else { return }
    socket = nil
    pipeline.syncOperations.fireChannelInactive()
    pipeline.syncOperations.fireChannelUnregistered()
    removeHandlers(pipeline: pipeline)
    closePromise.succeed()
    loop.end()
  }
}
