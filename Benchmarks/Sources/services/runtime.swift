import AppKineticsTesting
import ContainerStore
import Foundation
import Locks
import SecureFiles
import SodiumPrimitives

/// An app whose keys come and go while others send it files: how long they stay, how long it takes until it works again, and what a test
/// of an app costs before it begins.
struct RuntimeBenchmark {
  let rounds: Int

  private static let senderCount = 4
  private static let fileByteCount = 1 << 20
  private static let key = String(repeating: "k", count: 32)

  func run() async throws {
    print("what\tcount\tmedian/ms\tp99/ms\tlongest/ms")
    try await measureLocks()
    try await measureStarts()
    try await measureCheck()
  }

  private static func milliseconds(_ body: () async throws -> Void) async rethrows -> Double {
    let begin = ContinuousClock.now
    try await body()
    return begin.duration(to: .now) / .milliseconds(1)
  }

  private func report(_ name: String, _ times: [Double]) {
    let times = times.sorted()
    print(
      [
        name, "\(times.count)", text(times[times.count / 2], 3), text(times[times.count * 99 / 100], 3),
        text(times.last!, 3),
      ].joined(separator: "\t"))
  }

  /// From the owner's decision, before it is written to the management file, until no key is in memory; and from the key until the first
  /// handler begins.
  private func measureLocks() async throws {
    try await withTestApps { apps in
      let found = Guarded<ContinuousClock.Instant?>(nil)
      let (handled, handle) = AsyncStream.makeStream(
        of: ContinuousClock.Instant.self, bufferingPolicy: .bufferingNewest(1))
      let app = try await apps.startManaged(
        "com.example.app",
        prepare: { container, services in
          try services.offer(definition) { request in
            handle.yield(.now)
            let contents = try container.files.data(atPath: request.attachments[0])
            try container.files.write(contents, toPath: "/copy-of-\(request.id)")
            try container.files.removeItem(atPath: "/copy-of-\(request.id)")
            try await request.removeAttachments()
            return .reply()
          }
        },
        options: { options in
          options.rawKey = {
            found.withLock { $0 = .now }
            return try SecretBytes(utf8: Self.key)
          }
        })
      try app.container.store.addKey(.rawKey(SecretBytes(utf8: Self.key)))
      app.runtime.setForeground(false)
      let senders = try await withThrowingTaskGroup(of: TestApp.self) { group in
        for number in 0..<Self.senderCount {
          group.addTask {
            let sender = try await apps.start("com.example.sender\(number)")
            try sender.put(Data(count: Self.fileByteCount), at: "/file")
            return sender
          }
        }
        return try await group.reduce(into: []) { $0.append($1) }
      }
      let sending = senders.map { sender in
        Task {
          let request = ServiceRequest(definition, "files", attachments: ["/file"])
          while !Task.isCancelled { _ = try? await sender.services.call(request, to: app.id) }
        }
      }
      var (seals, firsts): ([Double], [Double]) = ([], [])
      for round in 0..<rounds {
        try await Task.sleep(for: .milliseconds(50 + round * 7 % 40))
        seals.append(try await Self.milliseconds { try await app.manage(["blocked": [:]]) })
        guard (try? app.container) == nil else { throw CocoaError(.featureUnsupported) }
        try await app.manage(["blocked": nil])
        try await Task.sleep(for: .milliseconds(50))
        found.withLock { $0 = nil }
        let first = Task {
          for await time in handled {
            if let found = found.withLock({ $0 }), time > found { return found.duration(to: time) }
          }
          return .zero
        }
        guard await app.runtime.authorizeAutonomously() else { throw CocoaError(.featureUnsupported) }
        firsts.append(await first.value / .milliseconds(1))
      }
      for task in sending { task.cancel() }
      report("decided to keys gone, mail arriving", seals)
      report("key to the first request handled", firsts)
      await app.end()
    }
  }

  /// Measures the set-up of an app's test, from its beginning to its own first line.
  private func measureStarts() async throws {
    var times: [Double] = []
    for _ in 0..<rounds {
      let begin = ContinuousClock.now
      try await withTestApps { apps in
        _ = try await apps.startManaged("com.example.app") { _, services in
          try services.offer(definition) { .reply($0.params) }
        }
        times.append(begin.duration(to: .now) / .milliseconds(1))
      }
    }
    report("test with a broker and an authorized app: begins", times)
  }

  /// Whether the keys are there is asked at each use of one, by the gate: alone, and beside what asks it.
  private func measureCheck() async throws {
    func nanoseconds(_ count: Int, _ body: () throws -> Void) rethrows -> Double {
      let begin = ContinuousClock.now
      for _ in 0..<count { try body() }
      return begin.duration(to: .now) / .nanoseconds(1) / Double(count)
    }
    try await withTestApps { apps in
      let app = try await apps.app("com.example.app")
      try app.put(Data(count: 1 << 20), at: "/file")
      let opened = try app.container.store.openFile("/file", .read)
      let (pool, file) = (KeyPool(), open("/proc/self/exe", O_RDONLY))
      defer { close(file) }
      var buffer = [UInt8](repeating: 0, count: 4096)
      var (checks, reads, fileReads): ([Double], [Double], [Double]) = ([], [], [])
      for _ in 0..<11 {
        checks.append(
          try nanoseconds(1_000_000) { () throws -> Void in
            try pool.inside(else: CryptoError.keysWiped) { () throws(CryptoError) -> Void in }
          })
        reads.append(nanoseconds(1_000_000) { _ = pread(file, &buffer, buffer.count, 0) })
        fileReads.append(
          try nanoseconds(10_000) {
            _ = try buffer.withUnsafeMutableBytes { try opened.read(at: 8192, into: $0) }
          })
      }
      for (name, times) in [
        ("a check of the keys", checks), ("pread of 4 KiB", reads),
        ("4 KiB of an open file of the container", fileReads),
      ] { print("\(name)\t\(text(times.sorted()[5], 1)) ns") }
    }
  }
}
