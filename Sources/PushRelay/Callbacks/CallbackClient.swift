internal import AsyncHTTPClient
internal import Foundation
internal import Locks
package import Logging
internal import NIOCore
internal import NIOHTTP1
internal import NIOPosix
internal import NIOSSL

/// Calls back ends over HTTP/1.1 at addresses that the policy permits. A name is resolved once for each
/// call, and the connection goes to an address that was checked.
package struct CallbackClient: CallbackCalling {
  private let policy: AddressPolicy
  private let time: TimeAmount
  private let byteCountMax: Int
  private let tls: TLSConfiguration
  private let resolver: HostResolver
  private let logger: Logger
  private let refusals = RefusalLog()

  /// `resolve` returns all addresses of a host and may block.
  package init(
    configuration: RelayConfiguration, logger: Logger,
    resolve: @escaping @Sendable (String) -> [IPAddress] = { IPAddress.resolve($0) }
  ) throws {
    policy = AddressPolicy(allowed: configuration.callbackNetworks)
    time = .milliseconds(configuration.callbackTime)
    byteCountMax = configuration.callbackBytes
    var tls = TLSConfiguration.makeClientConfiguration()
    if let path = configuration.callbackAuthorities {
      tls.additionalTrustRoots = [.certificates(try NIOSSLCertificate.fromPEMFile(path))]
    }
    self.tls = tls
    self.logger = logger
    resolver = HostResolver(time: time, resolve: resolve)
  }

  package func close() {
    resolver.close()
  }

  package func call(_ request: CallbackRequest) async throws(CallbackFailure) -> CallbackResponse {
    let addresses = try await addresses(of: request.url.host)
    // A look-up has a time of its own, so that the names of others cost this call nothing.
    let deadline = NIODeadline.now() + time
    let permitted = addresses.filter { policy.permits($0) }
    if permitted.isEmpty, refusals.isNew(request.url.host) {
      logger.notice(
        "a callback is refused: no address of its host is public; --allow-callbacks-to allows a network",
        metadata: [
          "host": "\(request.url.host)",
          "addresses": "\(addresses.map(\.description).joined(separator: " "))",
        ])
    }
    var failure = CallbackFailure.noConnection
    for address in permitted {
      do {
        return try await call(request, at: address, until: deadline)
      } catch {
        failure = error
        // Another address is tried when there was no connection to this one.
        guard error == .noConnection, NIODeadline.now() < deadline else { break }
      }
    }
    throw failure
  }

  private func call(
    _ request: CallbackRequest, at address: IPAddress, until deadline: NIODeadline
  ) async throws(CallbackFailure) -> CallbackResponse {
    var configuration = HTTPClient.Configuration(
      tlsConfiguration: tls, redirectConfiguration: .disallow,
      timeout: HTTPClient.Configuration.Timeout(connect: .nanoseconds(time.nanoseconds / 2)))
    configuration.httpVersion = .http1Only
    configuration.connectionPool.retryConnectionEstablishment = false
    // The client resolves every host again for which it has no address, so this is the host as it reads it.
    guard let url = URL(string: request.url.requestText), url.host?.strippingBrackets == request.url.host
    else {
      logger.error(
        "a callback URL has two readings and is not called", metadata: ["url": "\(request.url.text)"])
      throw .noConnection
    }
    configuration.dnsOverride = [request.url.host: address.description]
    let client = HTTPClient(eventLoopGroupProvider: .singleton, configuration: configuration)
    let result = await Self.execute(request, client, until: deadline, byteCountMax)
    try? await client.shutdown()
    switch result {
    case .success(let response): return response
    case .failure(let error):
      logger.debug(
        "a call to a back end failed", metadata: ["host": "\(request.url.host)", "error": "\(error)"])
      throw Self.failure(error)
    }
  }

  private static func execute(
    _ request: CallbackRequest, _ client: HTTPClient, until deadline: NIODeadline, _ byteCountMax: Int
  ) async -> Result<CallbackResponse, any Error> {
    do {
      var message = HTTPClientRequest(url: request.url.requestText)
      message.method = HTTPMethod(rawValue: request.method)
      for (name, value) in request.headers { message.headers.add(name: name, value: value) }
      message.headers.add(name: "Connection", value: "close")
      if let body = request.body { message.body = .bytes(ByteBuffer(string: body)) }
      let response = try await client.execute(message, deadline: deadline)
      let body = try await response.body.collect(upTo: byteCountMax)
      return .success(
        CallbackResponse(
          status: Int(response.status.code), codes: response.headers["X-Good-GNP-Code"],
          body: Data(body.readableBytesView)))
    } catch {
      return .failure(error)
    }
  }

  private static func failure(_ error: any Error) -> CallbackFailure {
    switch error {
    case let error as HTTPClientError:
      switch error {
      case .connectTimeout: .noConnection
      case .tlsHandshakeTimeout: .invalidCertificate
      case .deadlineExceeded, .readTimeout, .cancelled: .timeout
      default: .invalidResponse
      }
    case is NIOSSLError, is NIOSSLExtraError, is BoringSSLError: .invalidCertificate
    case is NIOConnectionError, is IOError: .noConnection
    case let error as NIOCore.ChannelError:
      if case .connectTimeout = error { .noConnection } else { .invalidResponse }
    default: .invalidResponse
    }
  }

  /// All addresses of a host, in the order of the system.
  private func addresses(of host: String) async throws(CallbackFailure) -> [IPAddress] {
    if let address = IPAddress(host) { return [address] }
    let addresses = await resolver.addresses(of: host)
    guard !addresses.isEmpty else { throw .unresolvedHost }
    return addresses
  }
}

extension String {
  /// The text of an IPv6 address without its brackets.
  fileprivate var strippingBrackets: String {
    hasPrefix("[") && hasSuffix("]") ? String(dropFirst().dropLast()) : self
  }
}

/// The hosts of which a refusal is in the log: one line for each is enough.
private final class RefusalLog: Sendable {
  private static let countMax = 1000
  private let hosts = Guarded<Set<String>>([])

  func isNew(_ host: String) -> Bool {
    hosts.withLock { hosts in
      guard hosts.count < Self.countMax else { return false }
      return hosts.insert(host).inserted
    }
  }
}
