import Foundation
import Logging
import NIOPosix
import Synchronization
import Testing

@testable import PushRelay

struct CallbackClientTests {
  static let loopback = IPAddress("127.0.0.1")!

  /// A server of back ends, for as long as `body` runs, and the heads of the requests that it got.
  static func withServer(
    _ body: (_ port: Int, _ requests: @Sendable () -> [BackEndRequest]) async throws -> Void
  ) async throws {
    let found = Mutex<[BackEndRequest]>([])
    let (ports, continuation) = AsyncStream.makeStream(of: Int.self)
    let serving = HTTPServing(configuration: RelayConfiguration(), logger: Logger(label: "test"))
    let server = try serving.makeServer(
      ListenAddress(host: "127.0.0.1", port: 0), tls: nil, group: MultiThreadedEventLoopGroup.singleton,
      responder: { request, _, _ in
        found.withLock { $0.append(request) }
        return BackEndResponse(status: 200, "")
      }, onRunning: { continuation.yield($0) })
    let task = Task { try await server.run() }
    let port = try #require(await ports.first { _ in true })
    try await body(port) { found.withLock { $0 } }
    task.cancel()
    _ = try? await task.value
  }

  static func client(
    milliseconds: Int64 = 10_000, resolve: @escaping @Sendable (String) -> [IPAddress]
  ) throws -> CallbackClient {
    var configuration = RelayConfiguration()
    configuration.callbackNetworks = [Network("127.0.0.1")!]
    configuration.callbackTime = milliseconds
    let logger = Logger(label: "test") { _ in SwiftLogNoOpLogHandler() }
    return try CallbackClient(configuration: configuration, logger: logger, resolve: resolve)
  }

  static func call(_ client: CallbackClient, _ url: String) async throws -> CallbackResponse {
    let url = try #require(CallbackURL(url))
    return try await client.call(CallbackRequest(url: url, method: "GET", headers: [], body: nil))
  }

  /// These names exist for the relay's look-up alone. A client that resolves them again finds nothing, or in
  /// the wild another address than the one that was checked.
  @Test(arguments: [
    "rebind.invalid", "REBIND.invalid", "Rebind.Invalid.", "xn--BCHER-kva.invalid", "a_b.invalid", "127.1",
  ])
  func aHostIsResolvedOnce(host: String) async throws {
    try await Self.withServer { port, requests in
      let names = Mutex<[String]>([])
      let client = try Self.client { name in
        names.withLock { $0.append(name) }
        return [Self.loopback]
      }
      #expect(try await Self.call(client, "http://\(host):\(port)/a?b=%20c").status == 200)
      let name = host.lowercased().hasSuffix(".") ? String(host.lowercased().dropLast()) : host.lowercased()
      #expect(names.withLock { $0 } == [name])
      #expect(requests().map(\.target) == ["/a?b=%20c"])
      client.close()
    }
  }

  /// The names of one domain that hang hold up no other name.
  @Test func namesThatHangDelayNobodyElse() async throws {
    try await Self.withServer { port, _ in
      let gate = DispatchSemaphore(value: 0)
      let client = try Self.client(milliseconds: 5000) { name in
        guard name.hasSuffix("slow.invalid") else { return [Self.loopback] }
        gate.wait()
        gate.signal()
        return []
      }
      try await withThrowingTaskGroup(of: CallbackFailure?.self) { group in
        for number in 0..<40 {
          for _ in 0..<2 {
            group.addTask {
              do {
                _ = try await Self.call(client, "http://h\(number).slow.invalid/")
                return nil
              } catch let failure as CallbackFailure {
                return failure
              }
            }
          }
        }
        for number in 0..<3 {
          #expect(try await Self.call(client, "http://good\(number).invalid:\(port)/").status == 200)
        }
        gate.signal()
        for try await failure in group { #expect(failure == .unresolvedHost) }
      }
      client.close()
    }
  }

  @Test func aNameThatIsNotResolvedInTimeIsUnknown() async throws {
    let gate = DispatchSemaphore(value: 0)
    let client = try Self.client(milliseconds: 50) { _ in
      gate.wait()
      return [Self.loopback]
    }
    await #expect(throws: CallbackFailure.unresolvedHost) { try await Self.call(client, "http://a.invalid/") }
    gate.signal()
    client.close()
  }
}
