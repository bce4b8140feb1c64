import ContainerStore
import Foundation
import SecureFiles
import ServiceValues
import Testing

@testable import AppKinetics

/// A sender whose container is put back to an earlier state: its numbers come again, for other messages.
struct RestoreTests {
  private let consumerID = "com.example.consumer"

  private func send(_ name: String, to provider: AppWorld.App, _ world: AppWorld) async throws {
    let consumer = try world.app(consumerID)
    try consumer.container.files.write(Data(name.utf8), toPath: "/file")
    try await consumer.services.start()
    let sent = try await consumer.services.send(
      ServiceRequest(echo, "tell", params: .string(name), attachments: ["/file"]), to: provider.id)
    try await sent.delivered()
    #expect(try await consumer.services.outbox().isEmpty)
    await consumer.services.stop()
    try consumer.container.close()
  }

  private func withProvider(_ body: (AppWorld, AppWorld.App, Box<String>) async throws -> Void) async throws {
    try await withWorld { world in
      let provider = try world.app("com.example.provider")
      let received = Box<String>()
      try provider.services.offer(echo) { request in
        received.put(request.params?.stringValue ?? "")
        return .noReply
      }
      try await provider.services.start()
      try await body(world, provider, received)
    }
  }

  private func copy(_ world: AppWorld) throws {
    try FileManager.default.copyItem(at: container(world), to: backup(world))
  }

  private func restore(_ world: AppWorld) throws {
    try FileManager.default.removeItem(at: container(world))
    try FileManager.default.copyItem(at: backup(world), to: container(world))
  }

  private func container(_ world: AppWorld) -> URL { world.directory.appendingPathComponent(consumerID) }
  private func backup(_ world: AppWorld) -> URL { world.directory.appendingPathComponent("backup") }

  /// Above and below the floor of the receiver: the last message before the copy is put back, and several.
  @Test(arguments: [1, 3]) func deliversWhatARestoredSenderSends(lostCount: Int) async throws {
    try await withProvider { world, provider, received in
      try await send("before", to: provider, world)
      try copy(world)
      for i in 0..<lostCount { try await send("lost \(i)", to: provider, world) }
      for round in 0..<2 {
        try restore(world)
        try await send("after \(round)", to: provider, world)
        try await send("later \(round)", to: provider, world)
      }
      let expected =
        ["before"] + (0..<lostCount).map { "lost \($0)" } + ["after 0", "later 0", "after 1", "later 1"]
      for name in expected { #expect(await received.next() == name) }
      #expect(received.values == expected)
      let messages = try provider.container.inboxMessages()
      #expect(messages.count == expected.count)
      #expect(try provider.container.store.verify().findings.isEmpty)
    }
  }

  /// The same for a copy that is used beside the original.
  @Test func deliversWhatBothOfTwoCopiesSend() async throws {
    try await withProvider { world, provider, received in
      try await send("before", to: provider, world)
      try copy(world)
      var expected = ["before"]
      let aside = world.directory.appendingPathComponent("aside")
      for round in 0..<4 {
        try await send("round \(round)", to: provider, world)
        expected.append("round \(round)")
        try FileManager.default.moveItem(at: container(world), to: aside)
        try FileManager.default.moveItem(at: backup(world), to: container(world))
        try FileManager.default.moveItem(at: aside, to: backup(world))
      }
      for name in expected { #expect(await received.next() == name) }
      #expect(received.values == expected)
    }
  }
}
