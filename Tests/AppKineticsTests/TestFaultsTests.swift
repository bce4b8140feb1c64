import AppKineticsTesting
import Foundation
import SecureFiles
import Testing

@testable import AppKinetics

/// What goes wrong for an app of a test, because the test says so.
@Suite(.timeLimit(.minutes(2)))
struct TestFaultsTests {
  private static let request = ServiceRequest(echo, "echo", params: 7, attachments: ["/one"])

  private func offer(_ services: AppServices) throws { try services.offer(echo) { .reply($0.params) } }

  @Test func aMessageWaitsForRoomOnAFullDisk() async throws {
    let clock = ManualClock()
    var options = TestApps.Options()
    options.clock = clock
    try await withTestApps(options) { apps in
      let provider = try await apps.start("com.example.provider") { try offer($0) }
      let consumer = try await apps.start("com.example.consumer")
      try consumer.put("one", at: "/one")
      provider.faults.hasFullDisk = true
      #expect(throws: CocoaError.self) { try provider.put(Data(count: 1 << 20), at: "/more") }
      let sent = try await consumer.services.send(Self.request, to: provider.id)
      // What is under way takes its own time, which a clock that runs ahead would not give it.
      func wait(until condition: () async throws -> Bool) async throws {
        while try await !condition() {
          clock.advance(by: .seconds(1))
          try await Task.sleep(for: .milliseconds(10))
        }
      }
      try await wait { try await consumer.services.outbox().first?.state == .noStorage }
      #expect(apps.callbacks.calls(of: provider.id) == [])
      provider.faults.hasFullDisk = false
      try await wait { sent.hasEnded }
      #expect(try await sent.reply()?.params == 7)
      #expect(try provider.inboxFiles().count == 1)
    }
  }

  /// As on a real disk: nothing grows, files can be removed, and the same process goes on when there is room.
  @Test func aFullDiskLosesNothing() async throws {
    try await withTestApps { apps in
      var notes = try await apps.start("com.example.notes")
      try notes.put("before", at: "/before")
      try notes.put(Data(count: 1 << 20), at: "/large")
      try notes.put("changed in the last moment", at: "/changed")
      notes.faults.hasFullDisk = true
      let failure = #expect(throws: CocoaError.self) {
        for number in 0..<100 { try notes.put(Data(count: 1 << 20), at: "/\(number)") }
      }
      #expect(failure?.code == .fileWriteOutOfSpace)
      #expect(notes.faults.hasFullDisk)
      try notes.files.removeItem(atPath: "/large")
      try await notes.container.synchronize()
      notes.faults.hasFullDisk = false
      try notes.put("after", at: "/after")
      notes = try await apps.restart(notes)
      for (path, text) in [
        ("/before", "before"), ("/changed", "changed in the last moment"), ("/after", "after"),
      ] { #expect(try notes.files.data(atPath: path) == Data(text.utf8)) }
      #expect(!notes.files.fileExists(atPath: "/large"))
    }
  }

  @Test func aTransferGoesOnOverBrokenChannels() async throws {
    try await withTestApps { apps in
      let provider = try await apps.start("com.example.provider") { try offer($0) }
      let consumer = try await apps.start("com.example.consumer")
      let part = Data((0..<1_000_003).map { UInt8(truncatingIfNeeded: $0 &* 31) })
      let contents = (0..<24).reduce(into: Data()) { all, _ in all.append(part) }
      try consumer.put(contents, at: "/one")
      let sent = try await consumer.services.send(Self.request, to: provider.id)
      var brokenCount = 0
      for round in 0..<100 where !sent.hasEnded && brokenCount < 5 {
        try await Task.sleep(for: .milliseconds(5))
        brokenCount += await (round.isMultiple(of: 2) ? provider : consumer).breakChannels()
      }
      #expect(brokenCount > 0)
      #expect(try await sent.reply()?.params == 7)
      let arrived = try provider.inboxFiles()
      #expect(try arrived.map { try provider.files.data(atPath: $0) } == [contents])
    }
  }

  /// Its request comes again in the next process.
  @Test func aProviderIsKilledWhileItHandles() async throws {
    try await withTestApps { apps in
      let handled = Box<Bool>()
      var provider = try await apps.start("com.example.provider") { services in
        try services.offer(echo) { request in
          handled.put(request.isRedelivered)
          try await Task.sleep(for: .seconds(3600))
          return .noReply
        }
      }
      let consumer = try await apps.start("com.example.consumer")
      try consumer.put("one", at: "/one")
      try provider.put("own", at: "/own")
      let sent = try await consumer.services.send(Self.request, to: provider.id)
      #expect(await handled.next() == false)
      await apps.kill(provider)
      await apps.kill(provider)
      #expect(throws: (any Error).self) { try provider.files.data(atPath: "/own") }
      #expect(!sent.hasEnded)
      provider = try await apps.restart(provider) { services in
        try services.offer(echo) { request in
          handled.put(request.isRedelivered)
          return .reply(request.params)
        }
      }
      #expect(try await sent.reply()?.params == 7)
      #expect(await handled.next() == true)
      #expect(
        apps.callbacks.calls(of: provider.id)
          == ["request echo from com.example.consumer", "request echo from com.example.consumer"]
          + ["reply to com.example.consumer"])
    }
  }

  /// A reply that is late reaches the next process of its caller.
  @Test(arguments: [true, false]) func repliesComeLate(isForTheSameProcess: Bool) async throws {
    try await withTestApps { apps in
      let provider = try await apps.start("com.example.provider") { try offer($0) }
      var consumer = try await apps.start("com.example.consumer")
      try consumer.put("one", at: "/one")
      provider.faults.holdsReplies = true
      let sent = try await consumer.services.send(Self.request, to: provider.id)
      while sent.status != .delivered || apps.callbacks.entries.isEmpty { await Task.yield() }
      #expect(
        apps.callbacks.entries.map(\.description) == [
          "com.example.provider request echo from com.example.consumer"
        ])
      if !isForTheSameProcess { consumer = try await apps.restart(consumer) }
      #expect(provider.faults.holdsReplies)
      provider.faults.holdsReplies = false
      if isForTheSameProcess {
        #expect(try await sent.reply()?.params == 7)
      } else {
        var replies: [UnclaimedReply] = []
        while replies.isEmpty {
          replies = try await consumer.services.unclaimedReplies()
          await Task.yield()
        }
        #expect(replies.map(\.request) == [sent.id])
      }
      #expect(apps.callbacks.take().last?.call == "reply to com.example.consumer")
      #expect(apps.callbacks.entries == [])
    }
  }

  /// The reply of a process that has ended is not sent by the next one.
  @Test func aHeldReplyEndsWithItsProcess() async throws {
    try await withTestApps { apps in
      var provider = try await apps.start("com.example.provider") { try offer($0) }
      let consumer = try await apps.start("com.example.consumer")
      try consumer.put("one", at: "/one")
      provider.faults.holdsReplies = true
      let sent = try await consumer.services.send(Self.request, to: provider.id)
      while apps.callbacks.entries.isEmpty { await Task.yield() }
      await apps.kill(provider)
      provider = try await apps.restart(provider) { try offer($0) }
      while apps.callbacks.entries.count < 2 { await Task.yield() }
      provider.faults.holdsReplies = false
      #expect(try await sent.reply()?.params == 7)
      let request = "request echo from com.example.consumer"
      #expect(apps.callbacks.take().map(\.call) == [request, request, "reply to com.example.consumer"])
    }
  }
}
