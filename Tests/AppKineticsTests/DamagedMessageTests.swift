import AppKinetics
import AppKineticsTesting
import Foundation
import SecureFiles
import ServiceValues
import SodiumPrimitives
import Testing

@testable import ContainerStore

/// Of a message that is damaged the others need not suffer.
struct DamagedMessageTests {
  @Test func startsBesideADamagedMessageOfTheQueue() async throws {
    try await withTestApps { world in
      let provider = try await world.app("com.example.provider")
      let queued = CatalogKey.queued(2)
      try provider.container.store.store.transaction { $0.put(queued, [1]) }
      try provider.services.offer(echo) { .reply($0.params) }
      try await provider.services.start()
      let consumer = try await world.app("com.example.consumer")
      try await consumer.services.start()
      let sent = try await consumer.services.send(
        ServiceRequest(echo, "echo", params: "hello"), to: provider.id)
      #expect(try await sent.reply()?.params == "hello")
      // It stays for who repairs the container.
      #expect(try provider.container.store.store.withSnapshot { try $0.value(queued) } == [1])
      #expect(try provider.container.store.verify().hasDamage)
    }
  }

  @Test func listsTheOthersAndTakesThemBack() async throws {
    try await withTestApps { world in
      let consumer = try await world.app("com.example.consumer")
      try consumer.container.files.write(Data("one".utf8), toPath: "/one")
      let receiver = try ApplicationID("com.example.provider")
      try await consumer.services.start()
      await world.stopBroker()
      let store = consumer.container.store
      let sent = try await consumer.services.send(
        ServiceRequest(echo, "echo", attachments: ["/one"]), to: receiver)
      // Bytes that are no message.
      let damaged = try store.enqueue(
        OutgoingMessage(
          id: .random(), receiver: receiver.text, message: [0xff], attachments: []))
      #expect {
        try OutboxMessage.all(in: consumer.container)
      } throws: { error in
        (error as? ContainerError)?.code == .catalogDamaged
          && "\(error)".contains("message \(damaged.number) in the outbox")
      }
      var skipped: [ContainerError] = []
      let others = try OutboxMessage.all(in: consumer.container, skipping: { skipped.append($0) })
      #expect(others.map(\.request) == [sent.id] && skipped.count == 1)
      #expect(try await consumer.services.outbox().map(\.request) == [sent.id])
      #expect(try await consumer.services.cancelRequest(sent.id, to: receiver))
      #expect(try await consumer.services.outbox().isEmpty)
    }
  }
}
