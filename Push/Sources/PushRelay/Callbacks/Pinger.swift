internal import Foundation
internal import Synchronization

/// Asks back ends whether they still know the tokens of connected channels. Source: PUSH-PROTOCOL.md, *Ping*.
package final class Pinger: Sendable {
  /// Tokens that are due and name the same URL.
  package struct Batch: Sendable {
    package let url: CallbackURL
    let tokens: [(channel: ChannelNumber, prefix: String)]
  }

  package struct FailedPing: Equatable, Sendable {
    package let channel: ChannelNumber
    package let code: UInt32
  }

  private struct Entry: Sendable {
    let prefix: String
    let url: CallbackURL
    let interval: Int64
    var due: Int64
  }

  private struct State: Sendable {
    var entries: [ChannelNumber: Entry] = [:]
    var busyHosts: Set<String> = []
  }

  private let configuration: RelayConfiguration
  private let caller: any CallbackCalling
  private let state = Mutex(State())

  package init(configuration: RelayConfiguration, caller: any CallbackCalling) {
    self.configuration = configuration
    self.caller = caller
  }

  /// A channel is connected, or its callbacks have changed.
  package func opened(_ channel: StoredChannel, now: Int64) {
    state.withLock { state in
      guard channel.state == .open, let url = channel.callbacks.ping else {
        state.entries[channel.number] = nil
        return
      }
      let minutes = Int64(channel.callbacks.minimumPingMinutes ?? 0)
      let interval = max(configuration.pingInterval, minutes * 60_000)
      var entry = Entry(
        prefix: channel.prefix, url: url, interval: interval, due: Self.next(after: now, interval))
      // A channel that comes back is not due later than it was.
      if let earlier = state.entries[channel.number], earlier.url == url, earlier.interval == interval {
        entry.due = earlier.due
      }
      state.entries[channel.number] = entry
    }
  }

  private static func next(after now: Int64, _ interval: Int64) -> Int64 {
    now + interval + Int64.random(in: 0...max(1, interval / 10))
  }

  /// The batches that are due, for hosts that are not being called. Each has to be given to ``send(_:)``.
  package func due(now: Int64, isConnected: (ChannelNumber) -> Bool) -> [Batch] {
    state.withLock { state in
      var tokens: [CallbackURL: [(channel: ChannelNumber, prefix: String)]] = [:]
      var first: [CallbackURL: Int64] = [:]
      for (channel, entry) in state.entries
      where entry.due <= now && !state.busyHosts.contains(entry.url.host) {
        if isConnected(channel) {
          tokens[entry.url, default: []].append((channel, entry.prefix))
          first[entry.url] = min(first[entry.url] ?? .max, entry.due)
        } else if entry.due < now - RelayConfiguration.day {
          state.entries[channel] = nil
        }
      }
      var batches: [Batch] = []
      // The longest wait first.
      for (url, _) in first.sorted(by: { $0.value < $1.value }) where !state.busyHosts.contains(url.host) {
        let tokens = tokens[url]!
        guard state.busyHosts.count < configuration.callbacksAtOnce else { break }
        state.busyHosts.insert(url.host)
        for (channel, _) in tokens {
          state.entries[channel]!.due = Self.next(after: now, state.entries[channel]!.interval)
        }
        batches.append(Batch(url: url, tokens: tokens))
      }
      return batches
    }
  }

  /// Sends a batch in as many requests as it needs. Returns the tokens for which it failed.
  package func send(_ batch: Batch) async -> [FailedPing] {
    var failed: [FailedPing] = []
    var rest = batch.tokens[...]
    while !rest.isEmpty {
      var byteCount = 0
      let count = rest.prefix { token in
        byteCount += token.prefix.utf8.count + 1
        return byteCount <= configuration.pingBatch
      }.count
      let tokens = rest.prefix(max(1, count))
      rest = rest.dropFirst(tokens.count)
      failed += await ping(batch.url, Array(tokens))
    }
    state.withLock { _ = $0.busyHosts.remove(batch.url.host) }
    return failed
  }

  private func ping(
    _ url: CallbackURL, _ tokens: [(channel: ChannelNumber, prefix: String)]
  ) async -> [FailedPing] {
    let request = CallbackRequest(
      url: url, method: "POST", headers: [("Content-Type", "text/plain; charset=utf-8")],
      body: tokens.map(\.prefix).joined(separator: ","))
    do {
      let known = try Self.prefixes(try await caller.call(request))
      return tokens.filter { !known.contains($0.prefix) }.map {
        FailedPing(channel: $0.channel, code: CallbackFailure.unknownToken.rawValue)
      }
    } catch {
      return tokens.map { FailedPing(channel: $0.channel, code: error.rawValue) }
    }
  }

  /// The prefixes that a back end knows, according to its answer.
  private static func prefixes(_ response: CallbackResponse) throws(CallbackFailure) -> Set<String> {
    guard response.status == 200, response.codes.count == 1,
      Int(response.codes[0].prefix { $0.isNumber }) == GNPCode.ok.rawValue,
      let text = String(validating: response.body, as: UTF8.self)
    else { throw .invalidResponse }
    return Set(text.split(separator: ",").map { $0.trimmingCharacters(in: .whitespacesAndNewlines) })
  }
}
