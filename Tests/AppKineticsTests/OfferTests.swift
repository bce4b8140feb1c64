import AppKineticsTesting
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
    try await withTestApps { world in
      let provider = try await world.app("com.example.provider").services
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

  /// The code of the provider's error; nil for a reply.
  private func errorCode(
    _ request: ServiceRequest, _ consumer: AppServices, _ provider: ApplicationID
  ) async throws -> ServicesError.Code? {
    do {
      _ = try await consumer.call(request, to: provider)
      return nil
    } catch let error as ServiceReplyError {
      return error.runtimeError
    }
  }

  /// One handler takes all that nobody else does, and says itself what it does not know.
  @Test(arguments: [true, false])
  func givesTheRestToOneHandler(isObject: Bool) async throws {
    final class Rest: ServiceProvider {
      let answer: ServiceHandler
      init(_ answer: @escaping ServiceHandler) { self.answer = answer }
      func didReceive(_ request: IncomingRequest) {
        Task {
          do { _ = try await answer(request) } catch let error as ServicesError {
            try await request.reply(error: ServiceReplyError(error.code, text: error.code.name))
          }
        }
      }
    }
    try await withTestApps { world in
      let provider = try await world.echoPair().provider
      let app = try await world.app("com.example.rest")
      try app.container.files.write(Data("one".utf8), toPath: "/one")
      let consumer = app.services
      try await consumer.start()
      let answer: ServiceHandler = { request in
        guard request.service.text == "com.example.service1" else { throw ServicesError(.serviceNotFound) }
        guard request.method == "go" || request.method == "files" else {
          throw ServicesError(.methodNotFound)
        }
        try await request.reply(request.params, attachments: request.attachments)
        return .noReply
      }
      if isObject {
        provider.services.offerRest(provider: Rest(answer))
      } else {
        provider.services.offerRest(handler: answer)
      }
      func request(_ service: String, _ method: String) throws -> ServiceRequest {
        ServiceRequest(
          service: try ServiceIdentifier(service), version: try ServiceVersion("2.0.0.0"), method: method,
          params: 3)
      }
      // With a file, of a service that is offered, too.
      #expect(
        try await errorCode(
          ServiceRequest(
            service: echo.serviceID, version: echo.version, method: "none", attachments: ["/one"]),
          consumer, provider.id) == .serviceNotFound)
      let known = try request("com.example.service1", "go")
      #expect(try await consumer.call(known, to: provider.id)?.params == 3)
      #expect(
        try await errorCode(request("com.example.service2", "go"), consumer, provider.id)
          == .serviceNotFound
      )
      #expect(
        try await errorCode(request("com.example.service1", "none"), consumer, provider.id)
          == .methodNotFound)
      // A method that is not there of a service that is offered.
      #expect(
        try await errorCode(ServiceRequest(echo, "none").withoutDefinition, consumer, provider.id)
          == .serviceNotFound)
      try await expectEchoes(1, to: provider.id, consumer)
      #expect(try await consumer.providers(of: known.service).isEmpty)
      provider.services.offerRest(handler: nil)
      await #expect(throws: ServicesError(.serviceNotFound)) {
        try await consumer.call(known, to: provider.id)
      }
    }
  }

  @Test func tellsWhatIsOfferedWhileItRegisters() async throws {
    try await withTestApps { world in
      for i in 0..<100 {
        let provider = try await world.app("com.example.provider\(i)").services
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
