import AppKineticsTesting
import ContainerStore
import Foundation
import Locks
import ServiceWire
import SodiumPrimitives
import Testing

@testable import AppKinetics

/// A receiver keeps messages whose channels broke, within limits of time and number.
struct InterruptedDeliveryTests {
  /// The date is that of the services' clock.
  @Test func whatNobodyGoesOnWithIsDroppedAfterAWeek() async throws {
    try await withTestApps { world in
      let date = Guarded(Date())
      var app = try await world.start(
        "com.example.provider", options: { $0.clock = DateClock { date.withLock { $0 } } })
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

  /// The order of the interruptions does not matter.
  @Test func ofTooManyThoseThatWereOfferedLastAreKept() async throws {
    try await withTestApps { world in
      let app = try await world.start("com.example.provider")
      let sender = try ApplicationID("com.example.consumer")
      let ids = (0..<PeerInbox.interruptedCountMax + 8).map { _ in Identifier.random() }
      for isReversed in [false, true] {
        let kept = app.services.runtime.performAndWait { core -> Set<Identifier> in
          let inbox = core.peer(sender).inbox
          for id in ids {
            inbox.offered(
              .with {
                $0.id = id.data
                $0.request.id = id.data
              })
          }
          for id in isReversed ? ids.reversed() : ids { inbox.interrupted(id) }
          return Set(inbox.arriving.keys)
        }
        #expect(kept == Set(ids.suffix(PeerInbox.interruptedCountMax)))
      }
    }
  }
}
