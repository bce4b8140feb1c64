import Foundation
import Locks
import PushClient

/// Apps with the client of this package, each with its own state on the disk and one channel, in one process.
final class Apps: Sendable {
  private let runtimes: [PushRuntime]
  private let state = Guarded(State())

  private struct State {
    var tokens: [String] = []
    var messages: [(text: String, time: UInt64)] = []
  }

  /// Returns when every channel is open.
  init(count: Int, port: Int, authorities: String, folder: URL) async throws {
    runtimes = try (0..<count).map { index in
      var options = PushRuntime.Options(
        relay: URL(string: "wss://localhost:\(port)")!,
        directory: folder.appending(path: "app-\(index)"), stateKey: Data(repeating: 1, count: 32))
      options.authorities = authorities
      return try PushRuntime(options)
    }
    for runtime in runtimes {
      Task {
        let channel = runtime.channel("bench")
        await channel.connect()
        for await event in channel.events { note(event) }
      }
    }
    while tokens.count < count { try await Task.sleep(for: .milliseconds(5)) }
  }

  private func note(_ event: PushEvent) {
    let now = DispatchTime.now().uptimeNanoseconds
    state.withLock { state in
      switch event {
      case .opened(let token, _, _): state.tokens.append(token)
      case .message(let message): state.messages.append((message.text ?? "", now))
      default: break
      }
    }
  }

  var tokens: [String] { state.withLock { $0.tokens } }
  var messages: Int { state.withLock { $0.messages.count } }

  /// The messages that were shown since the last call.
  func takeMessages() -> [(text: String, time: UInt64)] {
    state.withLock { state in
      defer { state.messages = [] }
      return state.messages
    }
  }

  func stop() async {
    for runtime in runtimes { await runtime.stop() }
  }
}
