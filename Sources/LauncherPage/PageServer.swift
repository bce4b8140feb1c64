import Locks
import Logging
import NIOCore
import NIOHTTP1
import NIOPosix
import SodiumPrimitives

/// An HTTP server on this machine that answers this user only.
///
/// Everything that another program makes it keep has a limit: connections, the bytes of a request, the time in which one has to come,
/// and the time in which an answer has to be read.
final class PageServer: Sendable {
  struct Request: Sendable {
    var method: HTTPMethod
    var path: String
    var headers: HTTPHeaders
    var body: [UInt8]
  }

  /// Sends a line of an answer that goes on.
  typealias Sender = @Sendable ([UInt8]) async throws -> Void

  struct Answer: Sendable {
    enum Body: Sendable {
      case whole([UInt8])
      /// Until it returns, or the browser goes.
      case lines(@Sendable (Sender) async throws -> Void)
    }

    var status: HTTPResponseStatus
    var headers: [(String, String)]
    var body: Body
    /// Whether the request has shown a session.
    var isOfSession = false
  }

  typealias Handler = @Sendable (Request) async -> Answer
  private typealias Connection = NIOAsyncChannel<NIOHTTPServerRequestFull, HTTPServerResponsePart>
  private typealias Writer = NIOAsyncChannelOutboundWriter<HTTPServerResponsePart>

  static let bodyByteCountMax = 65_536
  static let headerByteCountMax = 16_384
  static let connectionCountMax = 128

  /// `http://127.…:<port>`, another one for each server: what a browser has kept of an earlier program at an address is of no use there.
  let origin: String
  /// For a request to come, and for a line to be taken.
  private let time: TimeAmount
  /// One thread of its own: the kernel's list of connections is read there.
  private let group: MultiThreadedEventLoopGroup
  /// Nil for one that is of nobody who gets an answer.
  private let listener: NIOAsyncChannel<Connection?, Never>
  private let task = Guarded<Task<Void, Never>?>(nil)
  private let open = Guarded(Open())

  private struct Open {
    var channels: [ObjectIdentifier: any Channel] = [:]
    /// Those that have not shown a session, the oldest first.
    var strangers: [ObjectIdentifier] = []
    var hasStopped = false
  }

  init(time: Duration = .seconds(10)) async throws {
    self.time = TimeAmount(time)
    let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
    self.group = group
    do {
      let place = Random.bytes(3)
      let host = "127.\(place[0] % 254 + 1).\(place[1]).\(place[2] % 254 + 1)"
      listener = try await ServerBootstrap(group: group)
        .childChannelOption(.maxMessagesPerRead, value: 4)
        .bind(host: host, port: 0) { channel in
          channel.eventLoop.makeCompletedFuture {
            // Nothing is read of it before. An error would end the listener.
            guard Self.isOfThisUser(channel), let connection = try? Self.configure(channel) else {
              channel.close(promise: nil)
              return nil
            }
            return connection
          }
        }
      guard let port = listener.channel.localAddress?.port else { throw ChannelError.unknownLocalAddress }
      origin = "http://\(host):\(port)"
    } catch {
      try? await group.shutdownGracefully()
      throw error
    }
  }

  /// Answers until ``stop()``.
  func start(_ handler: @escaping Handler) {
    let listener = listener
    let running: Task<Void, Never> = Task { [self] in
      try? await listener.executeThenClose { connections in
        await withDiscardingTaskGroup { group in
          do {
            for try await case let connection? in connections {
              group.addTask { await self.serve(connection, handler) }
            }
          } catch {
            // It is closed.
          }
        }
      }
    }
    task.withLock { $0 = running }
  }

  /// Also of one that has not started. Does nothing the second time.
  func stop() async {
    let isFirst = open.withLock { open in
      defer { open.hasStopped = true }
      return !open.hasStopped
    }
    guard isFirst else { return }
    let running = task.withLock { $0.take() }
    running?.cancel()
    try? await listener.channel.close()
    let channels = open.withLock { Array($0.channels.values) }
    for channel in channels { channel.close(promise: nil) }
    await running?.value
    try? await group.shutdownGracefully()
  }

  private static func isOfThisUser(_ channel: any Channel) -> Bool {
    guard let other = end(channel.remoteAddress), let own = end(channel.localAddress) else { return false }
    return ConnectionOwner.isThisUser(other, connectedTo: own)
  }

  private static func end(_ address: SocketAddress?) -> ConnectionOwner.End? {
    guard case .v4(let address) = address else { return nil }
    let end = address.address
    return withUnsafeBytes(of: end.sin_addr.s_addr) {
      ConnectionOwner.End(address: Array($0), port: UInt16(bigEndian: end.sin_port))
    }
  }

  private static func configure(_ channel: any Channel) throws -> Connection {
    let pipeline = channel.pipeline.syncOperations
    var limits = NIOHTTPDecoderLimitConfiguration()
    limits.maxHeaderListSize = headerByteCountMax
    try pipeline.configureHTTPServerPipeline(
      withPipeliningAssistance: false, withEncoderConfiguration: .init(),
      withDecoderLimitConfiguration: limits)
    try pipeline.addHandler(NIOHTTPServerRequestAggregator(maxContentLength: bodyByteCountMax))
    return try Connection(wrappingChannelSynchronously: channel)
  }

  // MARK: A connection

  private func serve(_ connection: Connection, _ handler: @escaping Handler) async {
    let channel = connection.channel
    let id = ObjectIdentifier(channel)
    let surplus: (any Channel)? = open.withLock { open in
      open.channels[id] = channel
      open.strangers.append(id)
      guard open.channels.count > Self.connectionCountMax else { return nil }
      return open.channels[open.strangers.removeFirst()]
    }
    surplus?.close(promise: nil)
    defer {
      open.withLock {
        $0.channels[id] = nil
        $0.strangers.removeAll { $0 == id }
      }
    }
    try? await connection.executeThenClose { requests, writer in
      var requests = requests.makeAsyncIterator()
      guard let request = try await within(channel, { try await requests.next() }) else { return }
      let body = request.body.map { Array($0.readableBytesView) } ?? []
      let answer = await handler(
        Request(
          method: request.head.method, path: request.head.uri, headers: request.head.headers, body: body))
      if answer.isOfSession { open.withLock { $0.strangers.removeAll { $0 == id } } }
      try await send(answer, request.head, writer, channel)
    }
  }

  /// Each connection has one answer: there are few, and what waits for no second request holds no place.
  private func send(
    _ answer: Answer, _ request: HTTPRequestHead, _ writer: Writer, _ channel: any Channel
  ) async throws {
    var head = HTTPResponseHead(
      version: request.version, status: answer.status,
      headers: .init(answer.headers + [("Connection", "close")]))
    switch answer.body {
    case .whole(let bytes):
      head.headers.add(name: "Content-Length", value: "\(bytes.count)")
      try await within(channel) { [head] in
        try await writer.write(.head(head))
        if request.method != .HEAD { try await writer.write(.body(.byteBuffer(ByteBuffer(bytes: bytes)))) }
        try await writer.write(.end(nil))
      }
    case .lines(let body):
      try await within(channel) { [head] in try await writer.write(.head(head)) }
      let sending = Task {
        try await body { line in
          try await within(channel) { try await writer.write(.body(.byteBuffer(ByteBuffer(bytes: line)))) }
        }
      }
      channel.closeFuture.whenComplete { _ in sending.cancel() }
      try await withTaskCancellationHandler {
        try await sending.value
      } onCancel: {
        sending.cancel()
      }
      try await within(channel) { try await writer.write(.end(nil)) }
    }
  }

  /// Closes the connection if something takes too long.
  private func within<R>(_ channel: any Channel, _ body: () async throws -> R) async throws -> R {
    let timer = channel.eventLoop.scheduleTask(in: time) { channel.close(promise: nil) }
    defer { timer.cancel() }
    return try await body()
  }
}
