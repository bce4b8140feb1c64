import AppKineticsTesting
import Foundation
import ServiceWire
import TestSupport
import Testing
import UnixSockets

@testable import AppKinetics

struct DiscoveryTests {
  @Test func findsWhoOffersAService() async throws {
    try await withTestApps { world in
      let provider = try await world.app("com.example.provider")
      try provider.services.offer(echo) { .reply($0.params) }
      try provider.services.offer(greetings, type: .server) { _ in .noReply }
      try await provider.services.start()
      let consumer = try await world.app("com.example.consumer").services
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

  /// Those of other users cannot be called, and those that offer nothing have nothing to be called for.
  @Test func findsThoseThatItCanCall() async throws {
    try await withTestApps { world in
      let provider = try await world.app("com.example.provider")
      try provider.services.offer(echo) { .reply($0.params) }
      try await provider.services.start()
      let other = try await world.app(
        Application(id: ApplicationID("com.example.other"), name: "other", activationUser: "another"))
      try other.services.offer(echo) { .reply($0.params) }
      try await other.services.start()
      let consumer = try await world.app("com.example.consumer").services
      try await consumer.start()
      #expect(try await consumer.providers().map(\.application) == [provider.id])
      #expect(
        try await consumer.providers(of: echo.serviceID, includesOwn: true).map(\.application) == [
          provider.id
        ])
      #expect(try await other.services.providers() == [])
      var lists = consumer.watchProviders().makeAsyncIterator()
      #expect(try await lists.next()?.map(\.application) == [provider.id])
      try await other.services.setState(.locked)
      provider.services.withdraw(echo.serviceID)
      #expect(try await lists.next() == [])
    }
  }

  /// An app does not rely on the broker: it follows no introduction to an app of another user.
  @Test func followsNoIntroductionToAnotherUser() async throws {
    try await withTestApps { world in
      let provider = try await world.app("com.example.provider")
      try await provider.services.start()
      try await provider.services.setState(.locked)
      let consumer = try await world.app("com.example.consumer").services
      try await consumer.start()
      // It waits for the other app, and no channel is there.
      let sent = try await consumer.send(ServiceRequest(echo, "echo"), to: provider.id)
      func pair() throws -> (near: Int32, far: Int32) {
        let pair = try SocketPair()
        return (dup(pair.first.descriptorNumber), dup(pair.second.descriptorNumber))
      }
      let (control, bulk) = (try pair(), try pair())
      let far = [control.far, bulk.far]
      defer { for descriptor in far { close(descriptor) } }
      consumer.runtime.performAndWait { core in
        core.peers[provider.id]?.open(
          .with {
            $0.ticket = Data(repeating: 1, count: 32)
            $0.appID = provider.id.text
            $0.activationUser = "another"
            $0.publicKey = Data(repeating: 9, count: 32)
          }, control.near, bulk.near)
      }
      await #expect(throws: ServicesError(.enterpriseUserNotMatch)) { try await sent.reply() }
      for descriptor in far {
        var end = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
        #expect(poll(&end, 1, 0) == 1 && end.revents & Int16(POLLHUP) != 0)
      }
    }
  }

  @Test func watchesWhoComesAndGoes() async throws {
    try await withTestApps { world in
      let consumer = try await world.app("com.example.consumer").services
      try await consumer.start()
      var lists = consumer.watchProviders(of: echo.serviceID).makeAsyncIterator()
      #expect(try await lists.next() == [])
      let provider = try await world.app("com.example.provider")
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
    try await withTestApps { world in
      let consumer = try await world.app("com.example.consumer").services
      try await consumer.start()
      var lists = consumer.watchProviders(of: echo.serviceID, includesContents: true).makeAsyncIterator()
      #expect(try await lists.next() == [])
      let icon = Data([0x89, 0x50, 0x4e, 0x47, 1, 2, 3])
      let provider = try await world.app(
        Application(id: ApplicationID("com.example.provider"), name: "provider", icon: icon))
      try provider.services.offer(echo) { .reply($0.params) }
      try await provider.services.start()
      let found = try #require(try await lists.next()?.first)
      #expect(found.icon == icon && found.services.first?.definition == echo && !found.isOwn)
    }
  }

  private func application(_ id: String, _ servers: [AppServer]) throws -> Application {
    try Application(id: ApplicationID(id), name: id, servers: servers)
  }

  @Test func findsTheServersBehindAService() async throws {
    try await withTestApps { world in
      let servers = try [
        AppServer(host: "backup.example", port: 443, priority: 2), AppServer(host: "one.example", port: 443),
        AppServer(host: "2001:db8::2", port: 8443),
      ]
      let provider = try await world.app(application("com.example.provider", servers))
      try provider.services.offer(echo, type: .server) { _ in .noReply }
      try await provider.services.start()
      let consumer = try await world.app("com.example.consumer").services
      try await consumer.start()
      let found = try #require(try await consumer.providers(of: echo.serviceID, type: .server).first)
      #expect(found.services.map(\.type) == [.server] && found.servers == servers)
      var random = SplitMix64(seed: 3)
      for _ in 0..<10 {
        let order = found.serversToTry(using: &random)
        #expect(order.last == servers[0] && Set(order.prefix(2)) == Set(servers[1...]))
      }
      #expect(Set(found.serversToTry()) == Set(servers))
      // The broker keeps them for later.
      await world.stopBroker()
      try await world.startBroker()
      #expect(try await consumer.providers(type: .server).map(\.servers) == [servers])
    }
  }

  @Test func refusesMoreServersThanMayBe() async throws {
    try await withTestApps { world in
      let servers = try (1...33).map { try AppServer(host: "h\($0).example", port: 443) }
      let most = Array(servers.dropLast())
      try await world.app(application("com.example.most", most)).services.start()
      let expected = ServicesError(
        .invalidRegistration, path: "servers", detail: "there are 33, and 32 are allowed")
      await #expect(throws: expected) { try await world.app(application("com.example.more", servers)) }
    }
  }

  @Test func keepsWatchingWhenTheBrokerComesBack() async throws {
    try await withTestApps { world in
      let consumer = try await world.app("com.example.consumer").services
      try await consumer.start()
      var lists = consumer.watchProviders(of: echo.serviceID).makeAsyncIterator()
      #expect(try await lists.next() == [])
      await world.stopBroker()
      try await world.startBroker()
      let provider = try await world.app("com.example.provider")
      try provider.services.offer(echo) { .reply($0.params) }
      try await provider.services.start()
      var list: [Provider] = []
      while list.isEmpty { list = try #require(try await lists.next()) }
      #expect(list.map(\.application) == [provider.id])
    }
  }
}
