internal import Foundation
internal import HTTPTypes
internal import HummingbirdCore
internal import HummingbirdTLS
internal import Logging
internal import NIOCore
internal import NIOHTTPTypes
internal import NIOSSL
internal import ServiceLifecycle
internal import Synchronization

/// An HTTP/1.1 server with the limits of PUSH-PROTOCOL.md.
struct HTTPServing: Sendable {
  typealias Responder =
    @Sendable (BackEndRequest, String, (Int) async throws(BodyFailure) -> Data) async -> BackEndResponse

  let configuration: RelayConfiguration
  let logger: Logger

  /// A server that runs until it is cancelled or shut down. `onRunning` is given the port.
  func makeServer(
    _ address: ListenAddress, tls: TLSConfiguration?, group: any EventLoopGroup,
    responder: @escaping Responder, onRunning: @escaping @Sendable (Int) -> Void
  ) throws -> any Service {
    let bodies = BodyBudget(byteCount: configuration.bodyBytesAtOnce)
    let base = HTTP1Channel(
      responder: { request, writer, channel in
        let response = await responder(
          BackEndRequest(request), channel.remoteAddress?.ipAddress ?? "local"
        ) { (byteCount) throws(BodyFailure) in
          try await bodies.read(request.body, byteCount: byteCount)
        }
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

  package var isLoopback: Bool {
    host == "localhost" || host == "::1" || (IPAddress(host).map { $0.isIPv4 && $0.bytes[0] == 127 } ?? false)
  }

  package var description: String { host.contains(":") ? "[\(host)]:\(port)" : "\(host):\(port)" }
}

extension BackEndRequest {
  fileprivate init(_ request: Request) {
    self.init(
      method: request.method.rawValue, target: request.uri.string,
      headers: request.headers.map { ($0.name.rawName, $0.value) })
  }
}

/// Bounds the bytes of all bodies that are being read.
private final class BodyBudget: Sendable {
  private let bound: Int
  private let used = Mutex(0)

  init(byteCount: Int) { bound = byteCount }

  func read(_ body: RequestBody, byteCount: Int) async throws(BodyFailure) -> Data {
    let hasRoom = used.withLock { used in
      guard used + byteCount <= bound else { return false }
      used += byteCount
      return true
    }
    guard hasRoom else { throw .overloaded }
    defer { used.withLock { $0 -= byteCount } }
    var data = Data(capacity: byteCount)
    do {
      for try await part in body {
        guard data.count + part.readableBytes <= byteCount else { throw BodyFailure.incomplete }
        data.append(contentsOf: part.readableBytesView)
      }
    } catch {
      throw .incomplete
    }
    guard data.count == byteCount else { throw .incomplete }
    return data
  }
}

/// Refuses connections of an address that has as many as it may.
private struct CountedChannel<Base: ServerChildChannel>: ServerChildChannel {
  private final class Counts: Sendable {
    let counts = Mutex<[String: Int]>([:])
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
    let address = channel.remoteAddress?.ipAddress ?? "local"
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
    await base.handle(value: value, logger: logger)
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
  private var deadline: Scheduled<Void>?

  init(idle: Int64, body: Int64) {
    self.idle = .seconds(idle)
    self.body = .seconds(body)
  }

  func handlerAdded(context: ChannelHandlerContext) { set(idle, context) }

  func handlerRemoved(context: ChannelHandlerContext) { deadline?.cancel() }

  func channelRead(context: ChannelHandlerContext, data: NIOAny) {
    switch unwrapInboundIn(data) {
    case .head: set(body, context)
    case .body: break
    case .end: deadline?.cancel()
    }
    context.fireChannelRead(data)
  }

  func write(context: ChannelHandlerContext, data: NIOAny, promise: EventLoopPromise<Void>?) {
    if case .end = unwrapOutboundIn(data) { set(idle, context) }
    context.write(data, promise: promise)
  }

  private func set(_ time: TimeAmount, _ context: ChannelHandlerContext) {
    deadline?.cancel()
    let channel = context.channel
    deadline = context.eventLoop.scheduleTask(in: time) { channel.close(promise: nil) }
  }
}
