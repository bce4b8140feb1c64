import AppKineticsTesting
import Foundation
import Testing

/// The product for tests of apps.
@Suite(.timeLimit(.minutes(2)))
struct TestAppsTests {
  private static func exists(_ path: String) -> Bool { FileManager.default.fileExists(atPath: path) }

  @Test func anAppGetsARequestWithAFileAndEverythingIsRemoved() async throws {
    let apps = try await TestApps()
    let provider = try await apps.start("com.example.provider") { services in
      try services.offer(echo) { .reply($0.params, attachments: $0.attachments) }
    }
    let consumer = try await apps.start("com.example.consumer")
    try consumer.put("one", at: "/a/b/one.txt")
    try consumer.put(Data("root".utf8), at: "/root")
    let reply = try await consumer.services.call(
      ServiceRequest(echo, "echo", params: 7, attachments: ["/a/b/one.txt", "/root"]), to: provider.id)
    #expect(reply?.params == 7)
    let arrived = try provider.inboxFiles()
    #expect(arrived.map { ($0 as NSString).lastPathComponent } == ["one.txt", "root"])
    #expect(try provider.files.data(atPath: arrived[0]) == Data("one".utf8))
    #expect(try consumer.inboxFiles().sorted() == reply?.attachments.sorted())
    #expect(Self.exists(apps.directory.path) && Self.exists(apps.socketPath))
    await apps.stop()
    #expect(!Self.exists(apps.directory.path))
    #expect(throws: (any Error).self) { try provider.inboxFiles() }
    await apps.stop()
  }

  @Test func anAppIsTheSameInItsNextProcess() async throws {
    try await withTestApps { apps in
      let logged = Box<String>()
      var provider = try await apps.start("com.example.provider") {
        logged.put($0.application.id.text)
        try $0.offer(echo) { .reply($0.params) }
      } options: {
        $0.attachmentCountMax = 1
      }
      try provider.put("kept", at: "/kept")
      let consumer = try await apps.start("com.example.consumer")
      try consumer.put("one", at: "/one")
      try consumer.put("two", at: "/two")
      // The container of an app that runs is taken.
      await #expect(throws: SecureFilesError.self) { try await apps.app("com.example.provider") }
      try await provider.services.setState(.locked)
      let sent = try await consumer.services.send(
        ServiceRequest(echo, "echo", params: 1, attachments: ["/one"]), to: provider.id)
      try await apps.end(provider)
      try await apps.end(provider)
      provider = try await apps.restart(provider) { try $0.offer(echo) { .reply($0.params) } }
      #expect(try await sent.reply()?.params == 1)
      #expect(try provider.files.data(atPath: "/kept") == Data("kept".utf8))
      #expect(logged.values == ["com.example.provider"])
      // Its options are the same.
      await #expect {
        try await consumer.services.call(
          ServiceRequest(echo, "echo", attachments: ["/one", "/two"]), to: provider.id)
      } throws: {
        ($0 as? ServicesError)?.code == .limitExceeded
      }
      provider = try await apps.reopen(provider)
      for try await found in consumer.services.watchProviders(of: echo.serviceID)
      where found.map(\.state) == [.notRunning] { break }
    }
  }

  @Test func theBrokerGoesAndComesBack() async throws {
    try await withTestApps { apps in
      let provider = try await apps.start("com.example.provider") { try $0.offer(echo) { _ in .noReply } }
      await apps.stopBroker()
      await #expect(throws: ServicesError.self) { try await apps.start("com.example.consumer") }
      try await apps.startBroker()
      // It was ended, so that its container is free.
      _ = try await apps.start("com.example.consumer")
      let late = try await apps.start("com.example.late")
      try await provider.services.start()
      #expect(try await late.services.providers(of: echo.serviceID).map(\.application) == [provider.id])
    }
  }

  @Test func theFrontIsTheUsersChoice() async throws {
    try await withTestApps { apps in
      let one = try await apps.start("com.example.one") { try $0.offer(echo) { .reply($0.params) } }
      let two = try await apps.start("com.example.two")
      for _ in 0..<20 {
        try await apps.bringToFront(one.id)
        #expect(one.services.isInFront && !two.services.isInFront)
        try await apps.bringToFront(two.id)
        #expect(two.services.isInFront && !one.services.isInFront)
      }
      let count = apps.fronts.count
      apps.refusesFront = true
      await #expect(throws: ServicesError(.frontRefused)) { try await apps.bringToFront(one.id) }
      #expect(two.services.isInFront)
      apps.refusesFront = false
      var changes = one.services.frontChanges.makeAsyncIterator()
      try await two.services.call(ServiceRequest(echo, "echo", foreground: .peer), to: one.id)
      #expect(await changes.next() == true)
      try await apps.bringToFront(nil)
      #expect(!one.services.isInFront && !two.services.isInFront)
      let asked = apps.fronts[count...]
      #expect(Array(asked) == [one.id, one.id, nil])
    }
  }

  @Test func anAppThatIsLockedRefusesInTheTimeOfTheOptions() async throws {
    var options = TestApps.Options()
    options.unlockTime = .zero
    try await withTestApps(options) { apps in
      let provider = try await apps.start("com.example.provider") { try $0.offer(echo) { .reply($0.params) } }
      let consumer = try await apps.start("com.example.consumer")
      try await provider.services.setState(.locked)
      // At the broker, and over the channel.
      await #expect(throws: ServicesError(.notAllowed)) {
        try await consumer.services.call(ServiceRequest(echo, "echo"), to: provider.id)
      }
      try await provider.services.setState(.running)
      try await expectEchoes(1, to: provider.id, consumer.services)
      try await provider.services.setState(.locked)
      await #expect(throws: ServicesError(.notAllowed)) {
        try await consumer.services.call(ServiceRequest(echo, "echo"), to: provider.id)
      }
    }
  }

  @Test func appsOfTwoTestsDoNotMeet() async throws {
    try await withTestApps { first in
      try await withTestApps { second in
        let one = try await first.start("com.example.same") { try $0.offer(echo) { .reply($0.params) } }
        let other = try await second.start("com.example.same")
        #expect(try await other.services.providers().isEmpty)
        #expect(try await one.services.providers(includesOwn: true).count == 1)
      }
    }
  }

  /// It runs in the test's own isolation, so that the closure may use what is not `Sendable`, and may throw.
  @MainActor @Test func aTestThatThrowsLeavesNothing() async throws {
    final class Seen { var place = "" }
    let seen = Seen()
    await #expect(throws: CancellationError.self) {
      try await withTestApps { apps in
        seen.place = apps.directory.path
        _ = try await apps.start("com.example.app")
        throw CancellationError()
      }
    }
    #expect(!seen.place.isEmpty && !Self.exists(seen.place))
  }
}
