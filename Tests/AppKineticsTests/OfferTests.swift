import Foundation
import ServiceValues
import Testing

@testable import AppKinetics

/// What the broker hears of services that are offered at any time.
struct OfferTests {
  private func service(_ number: Int) throws -> ServiceDefinition {
    try ServiceDefinition(
      jsonText: """
        {"service-id": "com.example.service\(number)", "version": "1.0.0.0", "methods": {"go": {}}}
        """)
  }

  @Test func outlivesAnOfferThatTheBrokerRefuses() async throws {
    try await withWorld { world in
      let provider = try world.app("com.example.provider").services
      try provider.offer(echo) { .reply($0.params) }
      try await provider.start()
      // One more than the broker takes.
      for i in 0..<100 { try provider.offer(try service(i)) { _ in .noReply } }
      await world.stopBroker()
      try await world.startBroker()
      // Asking waits for the connection.
      let found = try await provider.providers(of: echo.serviceID, includesOwn: true)
      #expect(found.map(\.application) == [provider.application.id])
      provider.withdraw(try service(0).serviceID)
      #expect(try await provider.providers(of: try service(1).serviceID, includesOwn: true).count == 1)
    }
  }

  @Test func tellsWhatIsOfferedWhileItRegisters() async throws {
    try await withWorld { world in
      for i in 0..<100 {
        let provider = try world.app("com.example.provider\(i)").services
        async let started: Void = provider.start()
        var wasRegistering: Bool?
        while wasRegistering == nil {
          wasRegistering = provider.runtime.performAndWait { core in
            switch core.broker.phase {
            case .registering:
              let key = ServiceKey(service: echo.serviceID, version: echo.version)
              core.services.offers[key] = Offer(
                definition: echo, type: .application, validates: false,
                handler: .function { .reply($0.params) })
              return true
            case .up: return false
            default: return nil
            }
          }
        }
        try await started
        guard wasRegistering == true else {
          await provider.stop()
          continue
        }
        let found = try await provider.providers(of: echo.serviceID, includesOwn: true)
        return #expect(found.map(\.application) == [provider.application.id])
      }
      Issue.record("no app was seen while it registers")
    }
  }
}
