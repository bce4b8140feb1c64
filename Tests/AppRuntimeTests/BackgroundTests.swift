import AppKineticsTesting
import Foundation
import Locks
import SecureFiles
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

  /// A column of the page's table.
  enum Column: CaseIterable {
    case notActivated, noPassword, none, idle, localBlock, newPassword, blocked, versionNotEntitled,
      notEntitled, remoteLock, wiped

    var hasKeys: Bool { [.none, .idle, .localBlock, .newPassword].contains(self) }
  }

  private func bring(_ device: Device, to column: Column) async throws {
    guard column != .notActivated else {
      try await device.start()
      return
    }
    let runtime = try await device.activated(
      #""serial": 1, "unlockCode": "CODE", "passwordRules": {"idleSeconds": 60}"#)
    switch column {
    case .notActivated, .none: break
    case .noPassword: try await device.restart()
    case .idle: device.clock.advance(by: .seconds(60))
    case .localBlock: runtime.block(LocalBlock(id: "a", notice: Notice(title: "", text: "")))
    case .newPassword:
      try await device.write(#""serial": 2, "passwordRules": {"minimumLength": 50, "idleSeconds": 60}"#)
      device.clock.advance(by: .seconds(60))
      try await runtime.authorize(passphrase: password())
    case .blocked: try await device.write(#""serial": 2, "blocked": {}"#)
    case .versionNotEntitled:
      try await device.write(#""serial": 2, "entitlements": {"com.example.app": ["9"]}"#)
    case .notEntitled: try await device.write(#""serial": 2, "entitlements": {}"#)
    case .remoteLock: try await device.write(#""serial": 2, "unlockCode": "CODE", "locked": 2"#)
    case .wiped: try await device.app.wipe()
    }
  }

  @Test(arguments: Column.allCases)
  func aNotificationIsDeliveredInEveryStateAndAFetchInThoseWithKeys(column: Column) async throws {
    try await withTestApps { world in
      let device = try Device(world)
      try await bring(device, to: column)
      let runtime = device.runtime
      let delivered = Guarded(false)
      let run = await runtime.deliver { state in
        delivered.withLock { $0 = true }
        return state.isAuthorized ? .newData : .noData
      }
      #expect(delivered.withLock { $0 } && run.result == (column.hasKeys ? .newData : .noData))
      let fetch = await runtime.performFetch { app in
        try app.container.files.write(Data("x".utf8), toPath: "/fetched")
        return .newData
      }
      #expect(fetch.result == (column.hasKeys ? .newData : .notAuthorized))
      #expect(((try? runtime.services) != nil) == column.hasKeys)
      if let code = runtime.authorization.shown?.code, !column.hasKeys {
        #expect(fetch.reason == "\(code.rawValue)")
      }
      await device.stop()
    }
  }

  @Test func workThatThrowsHasFailed() async throws {
    try await withTestApps { world in
      let device = try Device(world)
      let runtime = try await device.start()
      #expect(await runtime.deliver { _ in throw POSIXError(.EIO) }.result == .failed)
      await device.stop()
    }
  }

  @Test func aTransferOutlivesTheKeysInANativeFile() async throws {
    try await withTestApps { world in
      let device = try Device(world)
      let runtime = try await device.activated()
      let native = world.directory.appendingPathComponent("download")
      #expect(FileManager.default.createFile(atPath: native.path, contents: nil))
      let handle = try FileHandle(forWritingTo: native)
      let inside = try runtime.container.files
      #expect(inside.createFile(atPath: "/stored", contents: nil))
      let stored = try #require(SecureFileHandle(forWritingAtPath: "/stored", in: inside))
      let part = Data(repeating: 7, count: 100_000)
      for number in 0..<10 {
        if number == 5 { try await device.write(#""serial": 1, "blocked": {}"#) }
        try handle.write(contentsOf: part)
        if number < 5 { try stored.write(contentsOf: part) }
      }
      #expect(throws: CocoaError.self) { try stored.write(contentsOf: part) }
      try await device.write(#""serial": 2"#)
      try await runtime.authorize(passphrase: password())
      let files = try runtime.container.files
      try await files.importItem(at: native, toPath: "/download")
      try FileManager.default.removeItem(at: native)
      #expect(try files.data(atPath: "/download") == Data(repeating: 7, count: 1_000_000))
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
