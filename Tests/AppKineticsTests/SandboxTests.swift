import Foundation
import ServiceValues
import ServiceWire
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

  /// A list of files with long paths costs memory before anything of it is stored.
  @Test func listsOfASandboxAreBoundedTogether() async throws {
    try await withWorld { world in
      let provider = try world.app("com.example.provider")
      try provider.services.offer(echo) { .reply(.integer(Int64($0.attachments.count))) }
      try await provider.services.start()
      let consumer = try world.app("com.example.consumer")
      try await consumer.services.start()
      try await expectEchoes(1, to: provider.id, consumer.services)
      // 7,680 bytes in front of each name.
      let folder = String(repeating: "/" + String(repeating: "x", count: 255), count: 30)
      try consumer.container.files.createDirectory(atPath: folder, withIntermediateDirectories: true)
      let limit = 1 << 20
      let fileCount = limit / (folder.utf8.count + 128) + 1
      for i in 0..<fileCount { try consumer.container.files.write(Data(), toPath: "\(folder)/\(i)") }
      func send(_ path: String) async throws -> ServiceValue? {
        try await consumer.services.call(
          ServiceRequest(echo, "echo", attachments: [path]), to: provider.id
        )?.params
      }
      func held() -> Int { provider.services.runtime.performAndWait { $0.heldOfferByteCount } }
      #expect(try await send(folder) == .integer(Int64(fileCount)))
      #expect(held() == 0)
      provider.services.runtime.performAndWait { core in
        core.charges = SandboxCharges(
          limit: SandboxCharges.Charge(
            requestByteCount: limit, replyByteCount: limit, channelCount: 16, offerByteCount: limit))
        core.peers[consumer.id]?.setSandbox(7)
      }
      await #expect {
        _ = try await send(folder)
      } throws: {
        ($0 as? ServicesError)?.detail == "bytes of offers and lists of files"
      }
      #expect(try await send(folder + "/0") == .integer(1))
      #expect(held() == 0)
      #expect(provider.services.runtime.performAndWait { $0.charges[7].offerByteCount } == 0)
    }
  }
}
