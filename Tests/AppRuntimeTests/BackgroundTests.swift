import AppKineticsTesting
import Foundation
import Locks
import Testing

@testable import AppRuntime

/// Work without a person, by the rules of Documentation/BACKGROUND.md.
@Suite(.timeLimit(.minutes(2)))
struct BackgroundTests {
  @Test func aFetchRunsInAnAuthorizedAppAlone() async throws {
    try await withTestApps { world in
      let device = try Device(world)
      let runtime = try await device.activated(#""serial": 1, "passwordRules": {"idleSeconds": 60}"#)
      func fetch() async -> BackgroundRun.Result {
        await runtime.performFetch { app in
          try app.container.files.write(Data("x".utf8), toPath: "/fetched")
          return .newData
        }.result
      }
      #expect(await fetch() == .newData)
      device.clock.advance(by: .seconds(60))
      #expect(runtime.authorization.shown == .idle)
      #expect(await fetch() == .newData)
      runtime.block(LocalBlock(id: "a", notice: Notice(title: "", text: "")))
      #expect(await fetch() == .newData)
      try await device.write(#""serial": 2, "passwordRules": {"minimumLength": 50}"#)
      try await runtime.authorize(passphrase: password())
      #expect(runtime.authorization.shown == .passwordChange)
      #expect(await fetch() == .newData)
      try await device.write(#""serial": 3, "blocked": {}"#)
      #expect(await fetch() == .notAuthorized)
      #expect(runtime.backgroundRuns.map(\.result) == [.notAuthorized] + repeatElement(.newData, count: 4))
      #expect(runtime.backgroundRuns.first?.reason == "-301")
      // They are remembered.
      #expect(try await device.restart().backgroundRuns.count == 5)
      #expect(await device.runtime.performFetch { _ in .newData }.result == .notAuthorized)
      await device.stop()
    }
  }

  @Test func aNotificationIsDeliveredInEveryState() async throws {
    try await withTestApps { world in
      let device = try Device(world)
      let runtime = try await device.start()
      let states = Guarded<[Bool]>([])
      func deliver() async -> BackgroundRun.Result {
        await runtime.deliver { state in
          states.withLock { $0.append(state.isAuthorized) }
          return state.isAuthorized ? .newData : .noData
        }.result
      }
      #expect(await deliver() == .noData)
      try await runtime.activate(passphrase: password())
      #expect(await deliver() == .newData)
      try await device.write(#""serial": 1, "blocked": {}"#)
      #expect(await deliver() == .noData)
      #expect(states.withLock { $0 } == [false, true, false])
      #expect(await runtime.deliver { _ in throw POSIXError(.EIO) }.result == .failed)
      await device.stop()
    }
  }

  @Test func workHas30SecondsAndFiveMore() async throws {
    try await withTestApps { world in
      let device = try Device(world)
      let runtime = try await device.activated()
      let (expiries, hasBegun) = (Guarded(0), Guarded(false))
      func begin(_ work: @escaping @Sendable () async -> BackgroundRun.Result) async -> Task<
        BackgroundRun, Never
      > {
        hasBegun.withLock { $0 = false }
        let run = Task {
          await runtime.performFetch(expired: { expiries.withLock { $0 += 1 } }) { _ in
            hasBegun.withLock { $0 = true }
            return await work()
          }
        }
        while !hasBegun.withLock({ $0 }) || device.clock.nextWake == nil { await Task.yield() }
        return run
      }
      // It ends when it is cancelled.
      let kind = await begin {
        while !Task.isCancelled { await Task.yield() }
        return .noData
      }
      device.clock.advance(by: .milliseconds(29_999))
      #expect(expiries.withLock { $0 } == 0)
      device.clock.advance(by: .milliseconds(1))
      #expect(expiries.withLock { $0 } == 1)
      #expect(await kind.value.result == .noData)
      // It does not.
      let gate = Guarded(false)
      let stubborn = await begin {
        while !gate.withLock({ $0 }) { await Task.yield() }
        return .newData
      }
      device.clock.advance(by: .seconds(34))
      #expect(expiries.withLock { $0 } == 2)
      device.clock.advance(by: .seconds(1))
      let run = await stubborn.value
      #expect(run.result == .failed && run.seconds == 35)
      gate.withLock { $0 = true }
      await device.stop()
    }
  }

  @Test func remembers100Runs() async throws {
    try await withTestApps { world in
      let device = try Device(world)
      let runtime = try await device.start()
      for _ in 0..<110 { await runtime.deliver { _ in .noData } }
      #expect(runtime.backgroundRuns.count == BackgroundRun.countMax)
      await device.stop()
    }
  }
}
