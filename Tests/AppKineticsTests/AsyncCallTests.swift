import AppKineticsTesting
import BlockingCalls
import Foundation
import ServiceValues
import Testing

@testable import AppKinetics

/// Asynchronous calls leave the thread of their task, which is one of a pool as wide as the machine, free for others.
@Suite(.enabled(if: BlockingCalls.areSeen), .timeLimit(.minutes(2))) struct AsyncCallTests {
  @Test func appsAreMadeStartedAndEnded() async throws {
    let calls = try await BlockingCalls.during {
      let apps = try await TestApps()
      var app = try await apps.start("com.example.app")
      app = try await apps.restart(app)
      _ = try await AppServices(
        Application(id: ApplicationID("com.example.other"), name: "other"), container: app.container)
      try await apps.bringToFront(app.id)
      await apps.stopBroker()
      try await apps.startBroker()
      try await apps.end(app)
      await apps.stop()
    }
    #expect(calls == [])
  }

  /// With files and without, and taken back while the receiver is locked.
  @Test func requestsAreSentAnsweredAndTakenBack() async throws {
    let calls = try await BlockingCalls.during {
      try await withTestApps { apps in
        let provider = try await apps.start("com.example.provider") {
          try $0.offer(echo) { .reply($0.params, attachments: $0.attachments) }
        }
        var consumer = try await apps.start("com.example.consumer")
        try await consumer.files.write(Data(repeating: 1, count: 3 << 20), toPath: "/file", progress: nil)
        let reply = try await consumer.services.call(
          ServiceRequest(echo, "echo", params: 1, attachments: ["/file"]), to: provider.id)
        #expect(reply?.attachments.count == 1)
        try await consumer.services.removeAttachments(reply?.attachments ?? [])
        try await consumer.services.call(ServiceRequest(echo, "echo", params: 2), to: provider.id)

        _ = await consumer.services.peerKeys()
        try await provider.services.setState(.locked)
        let sent = try await consumer.services.send(
          ServiceRequest(echo, "tell", params: 4, attachments: ["/file"]), to: provider.id)
        _ = try await consumer.services.outbox()
        _ = await sent.cancel()
        consumer = try await apps.restart(consumer)
        await consumer.services.stop()
      }
    }
    #expect(calls == [])
  }
}
