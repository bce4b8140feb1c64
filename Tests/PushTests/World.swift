import Foundation
import PushClient
import PushTesting

struct Unexpected: Error {}

/// A relay, and one device with its folder.
final class World {
  let relay: TestRelay
  var key = Data((0..<32).map { UInt8($0) })
  private let folder = FileManager.default.temporaryDirectory.appending(path: "push-\(UUID().uuidString)")
  private var apps: [PushRuntime] = []

  init() async throws {
    relay = try await TestRelay()
  }

  /// The app is started.
  func app(
    gate: any PushGate = OpenPushGate(), relay url: URL? = nil,
    _ change: (inout PushRuntime.Options) -> Void = { _ in }
  ) async throws -> PushRuntime {
    var options = PushRuntime.Options(relay: url ?? relay.deviceURL, directory: folder, stateKey: key)
    options.gate = gate
    change(&options)
    let app = try PushRuntime(options)
    apps.append(app)
    return app
  }

  func end() async {
    for app in apps { await app.stop() }
    await relay.stop()
    try? FileManager.default.removeItem(at: folder)
  }
}

func next(_ channel: PushChannel) async throws -> PushEvent {
  var events = channel.events.makeAsyncIterator()
  guard let event = await events.next() else { throw Unexpected() }
  return event
}

/// Connects, and returns the token.
func opened(_ channel: PushChannel) async throws -> String {
  await channel.connect()
  guard case .opened(let token, nil, _) = try await next(channel) else { throw Unexpected() }
  return token
}

/// The next messages, and nothing else.
func texts(_ channel: PushChannel, _ count: Int) async throws -> [String] {
  var texts: [String] = []
  while texts.count < count {
    guard case .message(let message) = try await next(channel), let text = message.text else {
      throw Unexpected()
    }
    texts.append(text)
  }
  return texts
}

/// Waits for what happens on another thread.
func until(_ condition: () async throws -> Bool) async throws {
  for _ in 0..<1000 {
    if try await condition() { return }
    try await Task.sleep(for: .milliseconds(20))
  }
  throw Unexpected()
}

func untilEqual<T: Equatable>(_ expected: T, _ value: () async throws -> T) async throws {
  try await until { try await value() == expected }
}

/// The result of something that may hang. Throws when it takes longer.
func within<T: Sendable>(seconds: Int, _ body: @escaping @Sendable () async throws -> T) async throws -> T {
  try await withThrowingTaskGroup(of: T.self) { group in
    group.addTask(operation: body)
    group.addTask {
      try await Task.sleep(for: .seconds(seconds))
      throw Unexpected()
    }
    defer { group.cancelAll() }
    guard let result = try await group.next() else { throw Unexpected() }
    return result
  }
}

final class ScriptedGate: PushGate {
  private let stream = AsyncStream.makeStream(of: PushPermission.self)

  func permissions() -> AsyncStream<PushPermission> { stream.stream }

  func set(mayConnect: Bool, mayShow: Bool) {
    stream.continuation.yield(PushPermission(mayConnect: mayConnect, mayShow: mayShow))
  }
}
