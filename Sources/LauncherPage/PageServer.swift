import Locks
import Logging
import NIOCore
import NIOHTTP1
import NIOPosix

/// An HTTP server on a port of 127.0.0.1 that answers this user only.
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
  }

  typealias Handler = @Sendable (Request) async -> Answer
  private typealias Connection = NIOAsyncChannel<NIOHTTPServerRequestFull, HTTPServerResponsePart>
  private typealias Writer = NIOAsyncChannelOutboundWriter<HTTPServerResponsePart>

  static let bodyByteCountMax = 65_536
  static let headerByteCountMax = 16_384
  static let connectionCountMax = 128

  let port: UInt16
  /// For a request to come, and for a line to be taken.
  private let time: TimeAmount
  /// Nil for one that is of nobody who gets an answer.
  private let listener: NIOAsyncChannel<Connection?, Never>
  private let task = Guarded<Task<Void, Never>?>(nil)
  /// Those that wait for a request, the longest first, and how many there are in all.
  private let open = Guarded((waiting: [ObjectIdentifier](), channels: [ObjectIdentifier: any Channel]()))

  init(time: TimeAmount = .seconds(10)) async throws {
    self.time = time
    listener = try await ServerBootstrap(group: MultiThreadedEventLoopGroup.singleton)
      .childChannelOption(.maxMessagesPerRead, value: 4)
      .bind(host: "127.0.0.1", port: 0) { channel in
        channel.eventLoop.makeCompletedFuture {
          // Nothing is read of it before. The kernel's list is short, and no disk.
          // An error would end the listener.
          guard Self.isOfThisUser(channel), let connection = try? Self.configure(channel) else {
            channel.close(promise: nil)
            return nil
          }
          return connection
        }
      }
    guard let port = listener.channel.localAddress?.port.flatMap({ UInt16(exactly: $0) }) else {
      throw ChannelError.unknownLocalAddress
    }
    self.port = port
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

  func stop() async {
    let running = task.withLock { $0.take() }
    running?.cancel()
    try? await listener.channel.close()
    let channels = open.withLock { Array($0.channels.values) }
    for channel in channels { channel.close(promise: nil) }
    await running?.value
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
    open.withLock { $0.channels[id] = channel }
    defer {
      open.withLock {
        $0.channels[id] = nil
        $0.waiting.removeAll { $0 == id }
      }
    }
    try? await connection.executeThenClose { requests, writer in
      var requests = requests.makeAsyncIterator()
      while let request = try await next(&requests, channel) {
        let body = request.body.map { Array($0.readableBytesView) } ?? []
        let answer = await handler(
          Request(
            method: request.head.method, path: request.head.uri, headers: request.head.headers, body: body))
        let keepsAlive = request.head.isKeepAlive
        try await send(answer, request.head, keepsAlive: keepsAlive, writer, channel)
        if !keepsAlive { return }
      }
    }
  }

  private func next(
    _ requests: inout NIOAsyncChannelInboundStream<NIOHTTPServerRequestFull>.AsyncIterator,
    _ channel: any Channel
  ) async throws -> NIOHTTPServerRequestFull? {
    let id = ObjectIdentifier(channel)
    let surplus: (any Channel)? = open.withLock { open in
      open.waiting.append(id)
      return open.channels.count > Self.connectionCountMax ? open.channels[open.waiting[0]] : nil
    }
    surplus?.close(promise: nil)
    defer { open.withLock { $0.waiting.removeAll { $0 == id } } }
    return try await within(channel) { try await requests.next() }
  }

  private func send(
    _ answer: Answer, _ request: HTTPRequestHead, keepsAlive: Bool, _ writer: Writer, _ channel: any Channel
  ) async throws {
    var head = HTTPResponseHead(
      version: request.version, status: answer.status, headers: .init(answer.headers))
    if !keepsAlive { head.headers.add(name: "Connection", value: "close") }
    switch answer.body {
    case .whole(let bytes):
      head.headers.add(name: "Content-Length", value: "\(bytes.count)")
      try await within(channel) {
        try await writer.write(.head(head))
        if request.method != .HEAD { try await writer.write(.body(.byteBuffer(ByteBuffer(bytes: bytes)))) }
        try await writer.write(.end(nil))
      }
    case .lines(let body):
      try await within(channel) { try await writer.write(.head(head)) }
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
