import AppKineticsTesting
import ContainerStore
import Foundation
import Logging
import OpenDynamicsTesting
import SecureFiles
import ServiceValues
import SodiumPrimitives
import TestSupport
import Testing

@testable import AppKinetics

/// What a receiver's container does not take stays with its sender, who sees why.
@Suite(.timeLimit(.minutes(10)))
struct UnstorableTests {
  private func apps(
    _ world: TestApps, _ received: Box<IncomingRequest>
  ) async throws -> (provider: TestApp, consumer: TestApp) {
    let provider = try await world.start("com.example.provider") { try offer($0, received) }
    let consumer = try await world.start("com.example.consumer")
    try consumer.put("one", at: "/one")
    return (provider, consumer)
  }

  private func offer(_ services: AppServices, _ received: Box<IncomingRequest>) throws {
    try services.offer(echo) { request in
      received.put(request)
      return .reply(request.params)
    }
  }

  private static let request = ServiceRequest(echo, "echo", params: 7, attachments: ["/one"])

  private func wait(for state: OutboxMessage.State, of app: TestApp) async throws {
    for _ in 0..<2000 {
      if try await app.services.outbox().map(\.state) == [state] { return }
      try await Task.sleep(for: .milliseconds(10))
    }
    Issue.record("the outbox has \(try await app.services.outbox().map(\.state))")
  }

  /// With a channel that was there before, and without.
  @Test(arguments: [true, false]) func aContainerThatCloses(isConnected: Bool) async throws {
    try await withTestApps { world in
      let received = Box<IncomingRequest>()
      var (provider, consumer) = try await apps(world, received)
      if isConnected {
        _ = try await consumer.services.call(ServiceRequest(echo, "echo", params: 1), to: provider.id)
        _ = await received.next()
      }
      try await provider.container.close()
      let sent = try await consumer.services.send(Self.request, to: provider.id)
      try await wait(for: .noStorage, of: consumer)
      #expect(!sent.hasEnded)
      provider = try await world.restart(provider) { try offer($0, received) }
      #expect(try await sent.reply()?.params == 7)
      #expect(await received.next()?.id == sent.id)
      #expect(try provider.inboxFiles().count == 1)
    }
  }

  /// The receiver's disk is full, and then it is not: the next try comes by itself.
  @Test func aFullDisk() async throws {
    try await withTestApps { world in
      let received = Box<IncomingRequest>()
      let consumer = try await world.start("com.example.consumer")
      try consumer.put("one", at: "/one")
      let disk = RecordingIO()
      let key = try Credential.rawKey(TestApps.containerKey())
      let container = SecureContainer(try Container.create(io: disk, credential: key))
      var options = AppServices.Options()
      options.broker = world.socketPath
      options.logger = Logger(label: "quiet") { _ in SwiftLogNoOpLogHandler() }
      let id = try ApplicationID("com.example.full")
      let services = try await AppServices(
        Application(id: id, name: "full"), container: container, options: options)
      try offer(services, received)
      try await services.start()
      _ = try await consumer.services.call(ServiceRequest(echo, "echo", params: 1), to: id)
      _ = await received.next()
      let waiting = Box<IncomingTransfer>()
      let arrivals = services.arrivals
      Task { for await transfer in arrivals { waiting.put(transfer) } }
      disk.setCallFault { name, path, _ in name == "write" && path.hasPrefix("slab") ? ENOSPC : nil }
      let sent = try await consumer.services.send(Self.request, to: id)
      try await wait(for: .noStorage, of: consumer)
      let transfer = try #require(await waiting.next())
      while transfer.waitsFor != .storage { await Task.yield() }
      disk.setCallFault(nil)
      #expect(try await sent.reply()?.params == 7)
      await services.stop()
      try await container.close()
    }
  }

  @Test func nothingIsTakenOfServicesThatAreHeld() async throws {
    try await withTestApps { world in
      let received = Box<IncomingRequest>()
      var (provider, consumer) = try await apps(world, received)
      _ = try await consumer.services.call(ServiceRequest(echo, "echo", params: 1), to: provider.id)
      _ = await received.next()
      let isHandling = Box<Void>()
      try provider.services.offer(greetings) { _ in
        isHandling.put(())
        try await Task.sleep(for: .seconds(3600))
        return .reply()
      }
      let waits = try await consumer.services.send(ServiceRequest(greetings, "greetMe|2"), to: provider.id)
      _ = await isHandling.next()
      await provider.services.hold()
      let sent = Task { [services = consumer.services, id = provider.id] in
        try await services.call(Self.request, to: id)
      }
      while try await consumer.services.outbox().isEmpty { await Task.yield() }
      try await Task.sleep(for: .milliseconds(300))
      #expect(try await consumer.services.outbox().count == 1)
      #expect(try provider.inboxFiles().isEmpty && provider.container.store.messageQueue().unhandled.isEmpty)
      await expectError(.brokerUnavailable) { [services = provider.services, id = consumer.id] in
        try await services.send(ServiceRequest(echo, "echo"), to: id)
      }
      provider = try await world.restart(provider) { try offer($0, received) }
      #expect(try await sent.value?.params == 7)
      // Whoever waited hears that the process is another one.
      await expectError(.connectionLost) { try await waits.reply() }
    }
  }

  private func expectError<R>(
    _ code: ServicesError.Code, _ body: @Sendable () async throws -> R
  ) async {
    do {
      _ = try await body()
      Issue.record("no error")
    } catch {
      #expect((error as? ServicesError)?.code == code, "\(error)")
    }
  }
}
