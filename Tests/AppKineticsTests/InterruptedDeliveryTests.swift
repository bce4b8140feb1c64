import AppKineticsTesting
import ContainerStore
import Foundation
import Locks
import ServiceWire
import SodiumPrimitives
import Testing

@testable import AppKinetics

/// What a receiver keeps of messages whose channels broke.
struct InterruptedDeliveryTests {
  /// The date is that of the services' clock.
  @Test func whatNobodyGoesOnWithIsDroppedAfterAWeek() async throws {
    try await withTestApps { world in
      let date = Guarded(Date())
      var app = try await world.start(
        "com.example.provider", options: { $0.makeDate = { date.withLock { $0 } } })
      let incarnation = try #require(Incarnation(generation: 1, draw: .random()))
      let message = ArrivingMessage(
        id: .random(), sender: "com.example.consumer", incarnation: incarnation, number: 1, message: [1],
        fileCount: 1, byteCount: 1 << 20, storedByteCount: 1 << 21)
      try app.container.store.beginArrival(message).suspend()
      app = try await world.restart(app)
      #expect(try app.staged().count == 1)
      date.withLock { $0 += 8 * 86_400 }
      app = try await world.restart(app)
      #expect(try app.staged().isEmpty)
    }
  }
}
