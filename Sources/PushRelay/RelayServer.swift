internal import CoreMetrics
internal import Foundation
internal import Locks
package import Logging
package import NIOCore
internal import NIOPosix
package import NIOSSL
internal import ServiceLifecycle
internal import Synchronization

/// A relay with its sockets: devices, back ends and the operator have ports of their own.
package final class RelayServer: Service {
  /// Where to listen. Nil for not at all.
  package struct Addresses: Sendable {
    package var devices: ListenAddress?
    /// Devices without TLS: for tests on a loopback address.
    package var plainDevices: ListenAddress?
    package var backEnds: ListenAddress?
    package var plainBackEnds: ListenAddress?
    /// `/health` and `/metrics`, without TLS.
    package var `operator`: ListenAddress?

    package init() {}
  }

  /// The ports on which the server listens.
  package struct Ports: Equatable, Sendable {
    package var devices: Int?
    package var plainDevices: Int?
    package var backEnds: Int?
    package var plainBackEnds: Int?
    package var `operator`: Int?

    package init() {}
  }

  package struct Failure: Error, CustomStringConvertible {
    package let description: String
  }

  package let relay: Relay
  private let addresses: Addresses
  private let tls: TLSConfiguration?
  private let secure: DeviceServer
  private let plain: DeviceServer
  private let prometheus: PrometheusMetrics
  private let group: any EventLoopGroup
  private let logger: Logger
  private let onRunning: @Sendable (Ports) -> Void

  /// `tls` is needed for the addresses that use it. `onRunning` is called once all ports are open.
  package init(
    relay: Relay, addresses: Addresses, tls: TLSConfiguration?, prometheus: PrometheusMetrics,
    group: any EventLoopGroup = MultiThreadedEventLoopGroup.singleton, logger: Logger,
    onRunning: @escaping @Sendable (Ports) -> Void
  ) throws {
    guard tls != nil || (addresses.devices == nil && addresses.backEnds == nil) else {
      throw Failure(description: "TLS needs a certificate")
    }
    self.relay = relay
    self.addresses = addresses
    self.tls = tls
    self.prometheus = prometheus
    self.group = group
    self.logger = logger
    self.onRunning = onRunning
    secure = DeviceServer(relay, tls: try tls.map { try NIOSSLContext(configuration: $0) }, group: group)
    plain = DeviceServer(relay, tls: nil, group: group)
  }

  /// Cuts all devices off, without a word, or lets them come again: for tests.
  package func setReachable(_ isReachable: Bool) {
    secure.setReachable(isReachable)
    plain.setReachable(isReachable)
  }

  /// TLS 1.3 with a certificate chain and its key, both PEM.
  package static func tls(certificate: String, key: String) throws -> TLSConfiguration {
    var tls = TLSConfiguration.makeServerConfiguration(
      certificateChain: try NIOSSLCertificate.fromPEMBytes(Array(certificate.utf8)).map { .certificate($0) },
      privateKey: .privateKey(try NIOSSLPrivateKey(bytes: Array(key.utf8), format: .pem)))
    tls.minimumTLSVersion = .tlsv13
    return tls
  }

  /// Serves until the task is cancelled or shut down gracefully. Requests that are under way then are
  /// answered, unless they take longer than *drain time*.
  package func run() async throws {
    var ports = Ports()
    if let address = addresses.devices { ports.devices = try await secure.start(address) }
    if let address = addresses.plainDevices { ports.plainDevices = try await plain.start(address) }
    let http = HTTPServing(configuration: relay.configuration, logger: logger)
    let servers:
      [(
        any WritableKeyPath<Ports, Int?> & Sendable, ListenAddress?, TLSConfiguration?, HTTPServing.Responder
      )] = [
        (\.backEnds, addresses.backEnds, tls, respondToBackEnd),
        (\.plainBackEnds, addresses.plainBackEnds, nil, respondToBackEnd),
        (\.operator, addresses.operator, nil, respondToOperator),
      ]
    let found = Guarded(ports)
    let missing = Atomic<Int>(servers.count { $0.1 != nil })
    if missing.load(ordering: .relaxed) == 0 { onRunning(ports) }
    await relay.measure()

    var made: [any Service] = []
    for (path, address, tls, responder) in servers {
      guard let address else { continue }
      made.append(
        try http.makeServer(address, tls: tls, group: self.group, responder: responder) { port in
          found.withLock { $0[keyPath: path] = port }
          if missing.subtract(1, ordering: .acquiringAndReleasing).newValue == 0 {
            self.onRunning(found.withLock { $0 })
          }
        })
    }
    let listeners = made.map { Listener($0) }
    try await withThrowingTaskGroup(of: Void.self) { group in
      for listener in listeners { group.addTask { try await listener.task.value } }
      group.addTask { try? await gracefulShutdown() }
      probeLoops()
      group.addTask { await self.relay.run() }
      group.addTask {
        while !Task.isCancelled {
          self.secure.tick()
          self.plain.tick()
          try? await self.relay.clock.sleep(milliseconds: 1000)
        }
      }
      // The first that ends, ends all: a port that cannot be opened, the cancellation, or the shutdown.
      let first = await group.nextResult()
      // From here on requests get 503. The listeners stay for those until the others are done.
      relay.drain()
      // A task of its own, since this one may be cancelled.
      await Task.detached { await self.finish(http.work, listeners) }.value
      group.cancelAll()
      try first?.get()
    }
    await relay.storeTakes()
    await secure.stop()
    await plain.stop()
    logger.info("the relay has stopped")
  }

  /// Waits until no request is under way, at most for *drain time*, and ends the listeners.
  private func finish(_ work: RequestsUnderWay, _ listeners: [Listener]) async {
    let end = ContinuousClock.now + .milliseconds(relay.configuration.drainTime)
    while work.count > 0, ContinuousClock.now < end { try? await Task.sleep(for: .milliseconds(10)) }
    if work.count > 0 { logger.notice("requests are broken off", metadata: ["count": "\(work.count)"]) }
    for listener in listeners { await listener.stop() }
  }

  /// Notes by how much the loops are late.
  private func probeLoops() {
    let milliseconds = relay.configuration.loopProbeMilliseconds
    guard milliseconds > 0 else { return }
    for loop in group.makeIterator() {
      let due = NIOLoopBoundBox.makeBoxSendingValue(NIODeadline.now(), eventLoop: loop)
      loop.scheduleRepeatedTask(initialDelay: .zero, delay: .milliseconds(milliseconds)) { [relay] _ in
        let now = NIODeadline.now()
        let late = now - due.value
        relay.metrics.stalled(seconds: Double(late.nanoseconds) / 1e9)
        due.value = now + .milliseconds(milliseconds)
      }
    }
  }

  private var respondToBackEnd: HTTPServing.Responder {
    { [relay] request, address, body in await relay.respond(to: request, from: address, body: body) }
  }

  private var respondToOperator: HTTPServing.Responder {
    { [relay, prometheus] request, _, body in
      switch (request.method, request.target) {
      case ("GET", "/metrics"):
        relay.metrics.publishStall()
        var response = BackEndResponse(status: 200, "")
        response.headers = [("Content-Type", "text/plain; version=0.0.4; charset=utf-8")]
        response.text = prometheus.text()
        return response
      case ("GET", "/health"):
        if relay.isDraining { return BackEndResponse(status: 503, "stopping") }
        do {
          try await relay.store.check()
          return BackEndResponse(status: 200, "ok")
        } catch {
          return BackEndResponse(status: 503, "\(error)")
        }
      case ("POST", "/revoke"):
        guard let length = request.values(of: "Content-Length").first.flatMap({ Int($0) }), length <= 1024,
          let data = try? await body(length)
        else { return BackEndResponse(status: 400, "the body is a token", closesConnection: true) }
        let token = String(decoding: data, as: UTF8.self).trimmingCharacters(in: .whitespacesAndNewlines)
        do {
          guard try await relay.revoke(token) else {
            return BackEndResponse(status: 404, "there is no open channel with this token")
          }
          return BackEndResponse(status: 200, "revoked")
        } catch {
          return BackEndResponse(status: 503, "\(error)")
        }
      default:
        return BackEndResponse(status: 404, "there are /health, /metrics and /revoke", closesConnection: true)
      }
    }
  }
}

extension RelayServer.Ports {
  /// The names of the options, with their ports.
  package var named: [(name: String, port: Int)] {
    [
      ("devices", devices), ("plain-devices", plainDevices), ("back-ends", backEnds),
      ("plain-back-ends", plainBackEnds), ("operator", self.operator),
    ].compactMap { name, port in port.map { (name, $0) } }
  }
}

/// A listener that lives until it is stopped: it would end at the first sign of a shutdown by itself, and
/// break off what another one still does.
private final class Listener: Sendable {
  /// Ends when the listener has been stopped. Throws when it cannot listen.
  let task: Task<Void, any Error>
  private let group: ServiceGroup

  init(_ server: any Service) {
    let logger = Logger(label: "listener") { _ in SwiftLogNoOpLogHandler() }
    let group = ServiceGroup(
      configuration: ServiceGroupConfiguration(services: [server], logger: logger))
    self.group = group
    task = Task.detached { try await group.run() }
  }

  /// Closes the port, and each connection whose request is answered. What takes longer than a second more is
  /// broken off.
  func stop() async {
    await group.triggerGracefulShutdown()
    let limit = Task { [task] in
      try await Task.sleep(for: .seconds(1))
      task.cancel()
    }
    _ = try? await task.value
    limit.cancel()
  }
}
