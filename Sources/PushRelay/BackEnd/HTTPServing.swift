internal import Foundation
internal import HTTPTypes
internal import HummingbirdCore
internal import HummingbirdTLS
internal import Locks
internal import Logging
internal import NIOCore
internal import NIOHTTPTypes
internal import NIOSSL
internal import PushWire
internal import ServiceLifecycle
internal import Synchronization

/// An HTTP/1.1 server with the limits of PUSH-PROTOCOL.md.
struct HTTPServing: Sendable {
  typealias Responder =
    @Sendable (BackEndRequest, String, (Int) async throws(BodyFailure) -> Data) async -> BackEndResponse

  let configuration: RelayConfiguration
  let logger: Logger
  let work = RequestsUnderWay()

  /// A server that runs until it is cancelled or shut down. `onRunning` is given the port.
  func makeServer(
    _ address: ListenAddress, tls: TLSConfiguration?, group: any EventLoopGroup,
    responder: @escaping Responder, onRunning: @escaping @Sendable (Int) -> Void
  ) throws -> any Service {
    let bodies = BodyBudget(
      byteCount: configuration.bodyBytesAtOnce, ofAddress: configuration.bodyBytesOfAddress)
    let base = HTTP1Channel(
      responder: { [work] request, writer, channel in
        work.begin()
        defer { work.end() }
        let address = channel.remoteAddress?.ipAddress ?? "local"
        // The sender of such a request waits for this answer before it sends the body.
        var awaitsContinue = request.headers[.expect]?.lowercased() == "100-continue"
        var response = await responder(BackEndRequest(request), address) { (byteCount) throws(BodyFailure) in
          if awaitsContinue {
            awaitsContinue = false
            do {
              try await writer.writeInformationalHead(HTTPResponse(status: .continue))
            } catch {
              throw .incomplete
            }
          }
          return try await bodies.read(request.body, byteCount: byteCount, from: IPAddress.group(address))
        }
        // Whether the body follows an answer that came without it is up to the sender.
        if awaitsContinue { response.closesConnection = true }
        var headers = HTTPFields()
        for (name, value) in response.headers { headers.append(HTTPField(name: .init(name)!, value: value)) }
        headers[.contentLength] = "\(response.text.utf8.count)"
        if response.closesConnection { headers[.connection] = "close" }
        let head = HTTPResponse(status: .init(code: response.status), headerFields: headers)
        try await writer.write(
          response: head, body: ResponseBody(byteBuffer: ByteBuffer(string: response.text)))
        if response.closesConnection {
          // The answer has a second to get there: closing at once would make the system discard it.
          channel.eventLoop.scheduleTask(in: .seconds(1)) { channel.close(promise: nil) }
        }
      },
      configuration: HTTP1Channel.Configuration(
        additionalChannelHandlers: [
          RequestDeadlines(idle: configuration.idleSeconds, body: configuration.bodySeconds)
        ],
        httpDecoderConfiguration: HTTP1Channel.Configuration.DecoderConfiguration(
          maxHeaderFieldSize: configuration.headBytes, maxHeaderListSize: configuration.headBytes,
          maxHeaderFieldCount: 100)))
    let server = ServerConfiguration(
      address: .hostname(address.host, port: address.port), backlog: 1024,
      availableConnectionsDelegate: MaximumAvailableConnections(configuration.connections))
    let counted = CountedChannel(base: base, max: configuration.connectionsOfAddress)
    // The server reports a cancellation, which is how it ends, as an error.
    var logger = logger
    logger.logLevel = .critical
    let running: @Sendable (any Channel) async -> Void = { onRunning($0.localAddress?.port ?? address.port) }
    guard let tls else {
      return counted.server(
        configuration: server, onServerRunning: running, eventLoopGroup: group, logger: logger)
    }
    return try TLSChannel(counted, tlsConfiguration: tls).server(
      configuration: server, onServerRunning: running, eventLoopGroup: group, logger: logger)
  }
}

/// Where a server listens.
package struct ListenAddress: Hashable, Sendable, CustomStringConvertible {
  package var host: String
  /// 0 for any.
  package var port: Int

  package init(host: String, port: Int) {
    self.host = host
    self.port = port
  }

  /// Reads `HOST:PORT`; an IPv6 address stands in brackets.
  package init?(_ text: String) {
    guard let colon = text.lastIndex(of: ":"), let port = Int(text[text.index(after: colon)...]),
      (0...65535).contains(port)
    else { return nil }
    var host = String(text[..<colon])
    if host.hasPrefix("["), host.hasSuffix("]") {
      host = String(host.dropFirst().dropLast())
    } else if host.contains(":") {
      return nil
    }
    guard !host.isEmpty else { return nil }
    self.init(host: host, port: port)
  }

  package var isLoopback: Bool { Loopback.isHost(host) }

  package var description: String { host.contains(":") ? "[\(host)]:\(port)" : "\(host):\(port)" }
}

extension BackEndRequest {
  fileprivate init(_ request: Request) {
    self.init(
      method: request.method.rawValue, target: request.uri.string,
      headers: request.headers.map { ($0.name.rawName, $0.value) })
  }
}

/// Counts requests that are not answered.
final class RequestsUnderWay: Sendable {
  private let value = Atomic<Int>(0)

  var count: Int { value.load(ordering: .sequentiallyConsistent) }
  func begin() { value.add(1, ordering: .sequentiallyConsistent) }
  func end() { value.subtract(1, ordering: .sequentiallyConsistent) }
}

/// Bounds the bytes that have arrived of bodies that are being read: of all, and of each address.
private final class BodyBudget: Sendable {
  private struct State: Sendable {
    var used = 0
    var usedOfAddress: [String: Int] = [:]
  }

  private let bound: Int
  private let boundOfAddress: Int
  private let state = Guarded(State())

  init(byteCount: Int, ofAddress: Int) {
    bound = byteCount
    boundOfAddress = ofAddress
  }

  func read(_ body: RequestBody, byteCount: Int, from address: String) async throws(BodyFailure) -> Data {
    var data = Data()
    defer { free(data.count, of: address) }
    do {
      for try await part in body {
        guard data.count + part.readableBytes <= byteCount else { throw BodyFailure.incomplete }
        guard take(part.readableBytes, of: address) else { throw BodyFailure.overloaded }
        if data.isEmpty { data.reserveCapacity(min(byteCount, max(part.readableBytes, 64 << 10))) }
        data.append(contentsOf: part.readableBytesView)
      }
    } catch let failure as BodyFailure {
      throw failure
    } catch {
      throw .incomplete
    }
    guard data.count == byteCount else { throw .incomplete }
    return data
  }

  private func take(_ byteCount: Int, of address: String) -> Bool {
    state.withLock { state in
      let own = state.usedOfAddress[address] ?? 0
      guard state.used + byteCount <= bound, own + byteCount <= boundOfAddress else { return false }
      state.used += byteCount
      state.usedOfAddress[address] = own + byteCount
      return true
    }
  }

  private func free(_ byteCount: Int, of address: String) {
    guard byteCount > 0 else { return }
    state.withLock { state in
      state.used -= byteCount
      let own = (state.usedOfAddress[address] ?? 0) - byteCount
      state.usedOfAddress[address] = own > 0 ? own : nil
    }
  }
}

/// Refuses connections of an address that has as many as it may.
private struct CountedChannel<Base: ServerChildChannel>: ServerChildChannel {
  private final class Counts: Sendable {
    let counts = Guarded<[String: Int]>([:])
  }

  private struct Refused: Error {}

  private let base: Base
  private let max: Int
  private let counts = Counts()

  init(base: Base, max: Int) {
    self.base = base
    self.max = max
  }

  func setup(channel: any Channel, logger: Logger) -> EventLoopFuture<Base.Value> {
    let address = IPAddress.group(channel.remoteAddress?.ipAddress ?? "local")
    let isAllowed = counts.counts.withLock { counts in
      guard counts[address, default: 0] < max else { return false }
      counts[address, default: 0] += 1
      return true
    }
    guard isAllowed else {
      return channel.close().flatMapThrowing { throw Refused() }
    }
    channel.closeFuture.whenComplete { [counts] _ in
      counts.counts.withLock { counts in
        counts[address]! -= 1
        if counts[address] == 0 { counts[address] = nil }
      }
    }
    return base.setup(channel: channel, logger: logger)
  }

  func handle(value: Base.Value, logger: Logger) async {
    await withTaskExecutorPreference(LoopExecutor(value.channel.eventLoop)) {
      await base.handle(value: value, logger: logger)
    }
  }
}

/// Runs the tasks of a connection on the loop of its channel, so that a request does not change threads between its
/// socket and its answer.
private final class LoopExecutor: TaskExecutor {
  private let loop: any EventLoop

  init(_ loop: any EventLoop) {
    self.loop = loop
  }

  func enqueue(_ job: consuming ExecutorJob) {
    let job = UnownedJob(job)
    loop.execute { job.runSynchronously(on: self.asUnownedTaskExecutor()) }
  }
}

/// Closes a connection on which a head does not arrive in time, counted from the answer before it, or a
/// body.
private final class RequestDeadlines: ChannelDuplexHandler, RemovableChannelHandler {
  typealias InboundIn = HTTPRequestPart
  typealias InboundOut = HTTPRequestPart
  typealias OutboundIn = HTTPResponsePart
  typealias OutboundOut = HTTPResponsePart

  private let idle: TimeAmount
  private let body: TimeAmount
  /// When the connection is closed, if it is waited for.
  private var deadline: NIODeadline?
  /// Comes at the deadline of some time ago: setting it anew for each request would cost more.
  private var timer: Scheduled<Void>?
  private var timerTime = NIODeadline.distantFuture

  init(idle: Int64, body: Int64) {
    self.idle = .seconds(idle)
    self.body = .seconds(body)
  }

  func handlerAdded(context: ChannelHandlerContext) { set(idle, context) }

  func handlerRemoved(context: ChannelHandlerContext) { timer?.cancel() }

  func channelRead(context: ChannelHandlerContext, data: NIOAny) {
    switch unwrapInboundIn(data) {
    case .head: set(body, context)
    case .body: break
    case .end: deadline = nil
    }
    context.fireChannelRead(data)
  }

  func write(context: ChannelHandlerContext, data: NIOAny, promise: EventLoopPromise<Void>?) {
    if case .end = unwrapOutboundIn(data) { set(idle, context) }
    context.write(data, promise: promise)
  }

  private func set(_ time: TimeAmount, _ context: ChannelHandlerContext) {
    let deadline = NIODeadline.now() + time
    self.deadline = deadline
    if timer != nil, timerTime <= deadline { return }
    timer?.cancel()
    start(at: deadline, context.channel)
  }

  private func start(at time: NIODeadline, _ channel: any Channel) {
    timerTime = time
    let bound = NIOLoopBound(self, eventLoop: channel.eventLoop)
    timer = channel.eventLoop.scheduleTask(deadline: time) {
      let handler = bound.value
      handler.timer = nil
      guard let deadline = handler.deadline else { return }
      if deadline <= .now() { channel.close(promise: nil) } else { handler.start(at: deadline, channel) }
    }
  }
}
