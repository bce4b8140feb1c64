import Foundation
import NIOCore
import NIOHTTP1
import NIOPosix
import PushWire
import Synchronization

/// Back ends on connections that stay open, one request after the other on each.
struct Senders: Sendable {
  let port: Int
  let group: any EventLoopGroup

  struct Outcome: Sendable {
    var accepted = 0
    var refused = 0
    var seconds = 0.0
    /// When each message was sent, in nanoseconds of the same clock as a device's.
    var sent: [String: UInt64] = [:]
  }

  /// Sends `count` messages to tokens in turn. The text of a message is its number, filled up to `byteCount`.
  func push(_ count: Int, to tokens: [String], connections: Int, byteCount: Int, notesTimes: Bool)
    async throws
    -> Outcome
  {
    let numbers = Numbers()
    let begin = ContinuousClock.now
    var total = Outcome()
    try await withThrowingTaskGroup(of: Outcome.self) { group in
      for _ in 0..<connections {
        group.addTask {
          try await send(numbers, count, tokens, byteCount, notesTimes)
        }
      }
      for try await outcome in group {
        total.accepted += outcome.accepted
        total.refused += outcome.refused
        total.sent.merge(outcome.sent) { a, _ in a }
      }
    }
    total.seconds = (ContinuousClock.now - begin) / .seconds(1)
    return total
  }

  private func send(
    _ numbers: Numbers, _ count: Int, _ tokens: [String], _ byteCount: Int, _ notesTimes: Bool
  ) async throws -> Outcome {
    let channel = try await ClientBootstrap(group: group).connect(host: "127.0.0.1", port: port) { channel in
      channel.eventLoop.makeCompletedFuture {
        try channel.pipeline.syncOperations.addHTTPClientHandlers()
        return try NIOAsyncChannel<HTTPClientResponsePart, HTTPClientRequestPart>(
          wrappingChannelSynchronously: channel)
      }
    }
    return try await channel.executeThenClose { inbound, outbound in
      var outcome = Outcome()
      var parts = inbound.makeAsyncIterator()
      while true {
        let number = numbers.next()
        guard number < count else { return outcome }
        let name = "\(number)"
        let text = name + String(repeating: " ", count: max(0, byteCount - name.utf8.count))
        let secret = tokens[number % tokens.count].split(separator: " ").last ?? ""
        let head = HTTPRequestHead(
          version: .http1_1, method: .POST, uri: "/push/\(secret)",
          headers: ["Host": "localhost", "TTL": "3600", "Content-Length": "\(text.utf8.count)"])
        if notesTimes { outcome.sent[name] = DispatchTime.now().uptimeNanoseconds }
        try await outbound.write(
          contentsOf: [.head(head), .body(.byteBuffer(ByteBuffer(string: text))), .end(nil)])
        while let part = try await parts.next() {
          if case .head(let head) = part {
            if head.status == .created { outcome.accepted += 1 } else { outcome.refused += 1 }
          }
          if case .end = part { break }
        }
      }
    }
  }
}

private final class Numbers: Sendable {
  private let value = Atomic<Int>(0)

  func next() -> Int { value.add(1, ordering: .relaxed).oldValue }
}
