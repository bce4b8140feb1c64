import AppKineticsTesting
import Foundation
import SecureFiles
import ServiceValues
import ServiceWire
import Testing

@testable import AppKinetics

/// What is not sent, to whom nothing is sent, and what is left of messages that failed.
struct FileSafetyTests {
  final class Requests: ServiceProvider {
    let requests = Box<IncomingRequest>()
    func didReceive(_ request: IncomingRequest) { requests.put(request) }
  }

  private func pair(
    _ world: TestApps
  ) async throws -> (provider: TestApp, consumer: TestApp, requests: Box<IncomingRequest>) {
    let provider = try await world.app("com.example.provider")
    let handler = Requests()
    try provider.services.offer([echo], provider: handler)
    try provider.container.files.write(Data("answer".utf8), toPath: "/answer")
    try await provider.services.start()
    let consumer = try await world.app("com.example.consumer")
    try consumer.container.files.write(Data("one".utf8), toPath: "/one")
    try await consumer.services.start()
    return (provider, consumer, handler.requests)
  }

  @Test func doesNotSendThePrivateKey() async throws {
    try await withTestApps { world in
      let (provider, consumer, requests) = try await pair(world)
      let sent = try await consumer.services.send(ServiceRequest(echo, "echo"), to: provider.id)
      let request = try #require(await requests.next())
      for app in [provider, consumer] {
        let files = app.container.files
        try files.createDirectory(atPath: "/folder", withIntermediateDirectories: true)
        try files.createSymbolicLink(atPath: "/folder/link", withDestinationPath: "/.opendynamics")
        try files.createSymbolicLink(atPath: "/folder/top", withDestinationPath: "/")
      }
      for path in [
        "/.opendynamics/key", "/.opendynamics/broker", "/.opendynamics", "/.opendynamics/", "/", "//", ".",
        "/..", ".opendynamics/key", "/folder/../.opendynamics/key", "/folder/link/key", "/folder/link/",
        "/folder/link/..", "/folder/top/", "/folder/top/.opendynamics/./key",
      ] {
        do {
          _ = try await consumer.services.send(
            ServiceRequest(echo, "echo", attachments: ["/one", path]), to: provider.id)
          Issue.record("\(path) was sent")
        } catch let error as ServicesError {
          #expect(error.code == .attachmentNotFound && error.path == path)
        }
        do {
          try await request.reply(attachments: [path])
          Issue.record("\(path) was sent")
        } catch let error as ServicesError {
          #expect(error.code == .attachmentNotFound && error.path == path)
        }
      }
      try provider.container.files.write(Data(), toPath: "/.opendynamics2")
      try await request.reply(attachments: ["/.opendynamics2"])
      #expect(try await sent.reply()?.attachments.count == 1)
    }
  }

  @Test func leavesNothingOfAReplyThatIsNotSent() async throws {
    try await withTestApps { world in
      let (provider, consumer, requests) = try await pair(world)
      let sent = try await consumer.services.send(ServiceRequest(echo, "echo"), to: provider.id)
      let request = try #require(await requests.next())
      try await request.reply(attachments: ["/answer"])
      await #expect(throws: ServicesError.self) { try await request.reply(attachments: ["/answer"]) }
      #expect(try await sent.reply()?.attachments.count == 1)
      #expect(try consumer.inbox(of: provider).count == 1)
      // Two at once: one of them is the reply.
      let second = try await consumer.services.send(ServiceRequest(echo, "echo"), to: provider.id)
      let other = try #require(await requests.next())
      let taken = await withTaskGroup(of: Bool.self) { group in
        for _ in 0..<4 {
          group.addTask { (try? await other.reply(attachments: ["/answer"])) != nil }
        }
        return await group.reduce(0) { $0 + ($1 ? 1 : 0) }
      }
      #expect(taken == 1)
      #expect(try await second.reply()?.attachments.count == 1)
      #expect(try consumer.inbox(of: provider).count == 2)
    }
  }

  @Test func keepsTheFilesOfAReplyAgainstTheDefinition() async throws {
    let narrow = try ServiceDefinition(
      jsonText: """
        {"service-id": "com.example.echo", "version": "1.0.0.0", "methods": {
          "echo": {"params": {"type": "any"}, "result-value": {"type": "any"}}}}
        """)
    try await withTestApps { world in
      let (provider, consumer, requests) = try await pair(world)
      let sent = try await consumer.services.send(ServiceRequest(narrow, "echo"), to: provider.id)
      try await #require(await requests.next()).reply(attachments: ["/answer"])
      do {
        _ = try await sent.reply()
        Issue.record("an error expected")
      } catch ServicesError.invalidParams {
      }
      let path = try #require(sent.replyAttachments.first)
      #expect(
        try consumer.container.files.data(atPath: path) == provider.container.files.data(atPath: "/answer"))
      try await sent.removeReplyAttachments()
      #expect(try consumer.inbox(of: provider).isEmpty)
    }
  }
}
