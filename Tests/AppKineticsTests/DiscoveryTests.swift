import AppKinetics
import Foundation
import Testing

struct DiscoveryTests {
  @Test func findsWhoOffersAService() async throws {
    try await withWorld { world in
      let provider = try world.app("com.example.provider")
      try provider.services.offer(echo) { .reply($0.params) }
      try provider.services.offer(greetings, type: .server) { _ in .noReply }
      try await provider.services.start()
      let consumer = try world.app("com.example.consumer").services
      try await consumer.start()
      let found = try await consumer.providers(of: echo.serviceID)
      #expect(found.map(\.application) == [provider.id])
      #expect(found.first?.services.map(\.id) == [echo.serviceID])
      #expect(found.first?.state == .running)
      #expect(try await consumer.providers(of: echo.serviceID, version: ServiceVersion("2.0")) == [])
      #expect(try await consumer.providers(of: ServiceIdentifier("com.example.unknown")) == [])
      #expect(try await consumer.providers(type: .server).map(\.application) == [provider.id])
      #expect(try await consumer.providers(of: greetings.serviceID, type: .application) == [])
      let whole = try await consumer.providers(of: echo.serviceID, includesContents: true)
      #expect(whole.first?.services.first?.definition == echo)
      #expect(try await provider.services.providers(of: echo.serviceID) == [])
      let own = try await provider.services.providers(of: echo.serviceID, includesOwn: true)
      #expect(own.map(\.isOwn) == [true] && found.map(\.isOwn) == [false])
    }
  }

  @Test func watchesWhoComesAndGoes() async throws {
    try await withWorld { world in
      let consumer = try world.app("com.example.consumer").services
      try await consumer.start()
      var lists = consumer.watchProviders(of: echo.serviceID).makeAsyncIterator()
      #expect(try await lists.next() == [])
      let provider = try world.app("com.example.provider")
      try provider.services.offer(echo) { .reply($0.params) }
      try await provider.services.start()
      var list: [Provider] = []
      while list.first?.state != .running { list = try #require(try await lists.next()) }
      #expect(list.map(\.application) == [provider.id])
      try await provider.services.setState(.locked)
      while list.first?.state != .locked { list = try #require(try await lists.next()) }
      await provider.services.stop()
      while list.first?.state != .notRunning { list = try #require(try await lists.next()) }
    }
  }

  @Test func watchesIconsAndDefinitions() async throws {
    try await withWorld { world in
      let consumer = try world.app("com.example.consumer").services
      try await consumer.start()
      var lists = consumer.watchProviders(of: echo.serviceID, includesContents: true).makeAsyncIterator()
      #expect(try await lists.next() == [])
      let icon = Data([0x89, 0x50, 0x4e, 0x47, 1, 2, 3])
      let provider = try world.app("com.example.provider", icon: icon)
      try provider.services.offer(echo) { .reply($0.params) }
      try await provider.services.start()
      let found = try #require(try await lists.next()?.first)
      #expect(found.icon == icon && found.services.first?.definition == echo && !found.isOwn)
    }
  }

  @Test func keepsWatchingWhenTheBrokerComesBack() async throws {
    try await withWorld { world in
      let consumer = try world.app("com.example.consumer").services
      try await consumer.start()
      var lists = consumer.watchProviders(of: echo.serviceID).makeAsyncIterator()
      #expect(try await lists.next() == [])
      await world.stopBroker()
      try await world.startBroker()
      let provider = try world.app("com.example.provider")
      try provider.services.offer(echo) { .reply($0.params) }
      try await provider.services.start()
      var list: [Provider] = []
      while list.isEmpty { list = try #require(try await lists.next()) }
      #expect(list.map(\.application) == [provider.id])
    }
  }
}
