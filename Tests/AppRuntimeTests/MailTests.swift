import AppKineticsTesting
import Foundation
import Locks
import SecureFiles
import SodiumPrimitives
import TestSupport
import Testing

@testable import AppRuntime

/// What reaches an app whose keys come and go.
@Suite(.timeLimit(.minutes(5)))
struct MailTests {
  /// Messages with files arrive once each; calls end once each; no program is started, and no caller is refused for a gap.
  @Test func locksAndUnlocksLoseNothing() async throws {
    try await withTestApps { world in
      let roundCount = TestEffort.count(20, long: 200)
      let messageCount = 100
      let device = try Device(world)
      let answered = Guarded<Set<Int64>>([])
      let runtime = try await device.activated()
      let marker = world.directory.path + "/started"
      try await world.install(device.id.text, "/usr/bin/touch", [marker])
      let consumer = try await world.start("com.example.consumer")
      try consumer.put(String(repeating: "x", count: 50_000), at: "/file")

      // Half of them with files.
      let sending = Task {
        var ends: [ServicesError.Code: Int] = [:]
        try await withThrowingTaskGroup(of: ServicesError.Code?.self) { group in
          for i in 0..<Int64(messageCount) {
            try await Task.sleep(for: .milliseconds(5 * roundCount / 20))
            let isMessage = i % 2 == 0
            group.addTask {
              let request = ServiceRequest(
                echo, "echo", params: .integer(i), attachments: isMessage ? ["/file"] : [])
              do {
                let reply = try await consumer.services.call(request, to: device.id)
                #expect(reply?.params == .integer(i))
                answered.withLock { _ = $0.insert(i) }
                return nil
              } catch let error as ServicesError where !isMessage {
                return error.code
              }
            }
          }
          for try await code in group { if let code { ends[code, default: 0] += 1 } }
        }
        return ends
      }
      for round in 0..<roundCount {
        try await device.write(#""serial": \#(2 * round + 1), "blocked": {}"#)
        #expect(!runtime.authorization.isAuthorized)
        try await Task.sleep(for: .milliseconds(10))
        try await device.write(#""serial": \#(2 * round + 2)"#)
        try await runtime.authorize(passphrase: password())
        try await Task.sleep(for: .milliseconds(10))
      }
      let ends = try await sending.value
      // A call whose handler's app was sealed has lost its connection. Nobody else is refused.
      #expect(Set(ends.keys).isSubset(of: [.connectionLost]), "\(ends)")
      #expect(answered.withLock { $0.count } + ends.values.reduce(0, +) == messageCount)
      #expect(answered.withLock { $0.count { $0 % 2 == 0 } } == messageCount / 2)
      #expect(try await consumer.services.outbox().isEmpty)
      let received = try runtime.container.files.subpathsOfDirectory(atPath: "/Inbox").filter {
        $0.hasSuffix("/file")
      }
      #expect(received.count == messageCount / 2)
      #expect(!FileManager.default.fileExists(atPath: marker))
      await device.stop()
    }
  }

  /// A request waits while a person is asked for the password, and is handled when the password was typed.
  @Test func anIdleAppTakesMailAndAnswersAfterThePassword() async throws {
    try await withTestApps { world in
      let device = try Device(world)
      let runtime = try await device.activated(#""serial": 1, "passwordRules": {"idleSeconds": 60}"#)
      let consumer = try await world.start("com.example.consumer")
      try consumer.put("x", at: "/file")
      device.clock.advance(by: .seconds(60))
      #expect(runtime.authorization.shown == .idle)
      while try await consumer.services.providers(of: echo.serviceID).first?.state != .locked {
        await Task.yield()
      }
      let sent = try await consumer.services.send(
        ServiceRequest(echo, "echo", params: 1, attachments: ["/file"]), to: device.id)
      while try await consumer.services.outbox().first?.state != .locked { await Task.yield() }
      try await runtime.authorize(passphrase: password())
      #expect(try await sent.reply()?.params == 1)
      await device.stop()
    }
  }

  /// The user chooses a locked app: what stands in for it is in front, and the app after the password.
  @Test func aLockedAppStaysInFront() async throws {
    try await withTestApps { world in
      let device = try Device(world)
      let runtime = try await device.activated()
      try await world.choose(device.id.text)
      try await device.write(#""serial": 1, "blocked": {}"#)
      let consumer = try await world.start("com.example.consumer")
      while try await consumer.services.providers(of: echo.serviceID).first?.state != .locked {
        await Task.yield()
      }
      try await device.write(#""serial": 2"#)
      try await runtime.authorize(passphrase: password())
      let services = try runtime.services
      while !services.isInFront { await Task.yield() }
      await device.stop()
    }
  }

  /// What was to stand in for the app does not take the place of services that have started since.
  @Test func anAppThatIsUnlockedAtOnceKeepsItsPlace() async throws {
    try await withTestApps { world in
      let device = try Device(world)
      _ = try await device.activated()
      let consumer = try await world.start("com.example.consumer")
      for round in 0..<20 {
        if round.isMultiple(of: 2) {
          try await device.restart()
        } else {
          try await device.write(#""serial": \#(2 * round), "blocked": {}"#)
          try await device.write(#""serial": \#(2 * round + 1)"#)
        }
        try await device.runtime.authorize(passphrase: password())
        let reply = try await consumer.services.call(ServiceRequest(echo, "echo", params: 1), to: device.id)
        #expect(reply?.params == 1)
        #expect(try device.runtime.services.connectionError == nil)
        #expect(try await consumer.services.providers(of: echo.serviceID).map(\.state) == [.running])
      }
      await device.stop()
    }
  }
}
