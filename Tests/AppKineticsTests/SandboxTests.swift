import Foundation
import ServiceValues
import Testing

@testable import AppKinetics

/// What apps of a sandbox can make an app keep.
struct SandboxTests {
  /// Requests that nobody answers, of more bytes than a sandbox has.
  @Test func requestsOfASandboxAreBoundedTogether() async throws {
    try await withWorld { world in
      let gate = AsyncStream<Void>.makeStream()
      let provider = try world.app("com.example.provider")
      try provider.services.offer(echo) { _ in
        for await _ in gate.stream {}
        return .noReply
      }
      try await provider.services.start()
      let request = ServiceRequest(echo, "tell", params: .bytes([UInt8](repeating: 1, count: 1_000_000)))
      var consumers: [AppServices] = []
      for i in 0..<3 {
        let consumer = try world.app("com.example.consumer\(i)").services
        try await consumer.start()
        // So that the provider knows it.
        try await consumer.send(ServiceRequest(echo, "tell", params: .null), to: provider.id).delivered()
        consumers.append(consumer)
      }
      let boxed = consumers[0...1].map(\.application.id)
      provider.services.runtime.performAndWait { core in
        for id in boxed { core.peers[id]?.setSandbox(7) }
      }
      /// How many of so many are taken.
      func taken(_ count: Int, from consumers: [AppServices]) async throws -> Int {
        var sent: [SentRequest] = []
        for i in 0..<count {
          sent.append(try await consumers[i % consumers.count].send(request, to: provider.id))
        }
        var taken = 0
        for request in sent {
          do {
            try await request.delivered()
            taken += 1
          } catch let error as ServicesError {
            #expect(error.code == .limitExceeded)
          }
        }
        return taken
      }
      #expect(try await taken(16, from: Array(consumers[0...1])) == 8)
      #expect(try await taken(1, from: [consumers[1]]) == 0)
      // Nobody else hears of it.
      #expect(try await taken(12, from: [consumers[2]]) == 12)
      #expect(
        provider.services.runtime.performAndWait { $0.charges.room(in: 7, own: .init()) }.channelCount == 14)
      // Who leaves gives back what was kept for it.
      await consumers[0].stop()
      gate.continuation.finish()
      await consumers[1].stop()
    }
  }
}
