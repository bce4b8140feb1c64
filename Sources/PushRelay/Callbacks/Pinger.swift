internal import Foundation
internal import Locks

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
    /// The next ping may be sent from here on.
    var due: Int64
  }

  private struct Target: Sendable {
    var channels: Set<ChannelNumber> = []
    /// When the first of the channels is pinged, and with it all others that are due by then.
    var next: Int64 = .max
    /// How much later than due, as a part of the interval: so that more channels are due by then, and servers
    /// are not called all at once.
    var delay = Double.random(in: 0...0.1)

    func time(of entry: Entry) -> Int64 { entry.due + Int64(Double(entry.interval) * delay) }
  }

  private struct State: Sendable {
    var entries: [ChannelNumber: Entry] = [:]
    var targets: [CallbackURL: Target] = [:]
    var busyHosts: Set<String> = []

    mutating func remove(_ channel: ChannelNumber) {
      guard let url = entries.removeValue(forKey: channel)?.url else { return }
      targets[url]?.channels.remove(channel)
      if targets[url]?.channels.isEmpty ?? false { targets[url] = nil }
    }
  }

  private let configuration: RelayConfiguration
  private let caller: any CallbackCalling
  private let state = Guarded(State())

  package init(configuration: RelayConfiguration, caller: any CallbackCalling) {
    self.configuration = configuration
    self.caller = caller
  }

  /// A channel is connected, or its callbacks have changed.
  package func opened(_ channel: StoredChannel, now: Int64) {
    state.withLock { state in
      guard channel.state == .open, let url = channel.callbacks.ping else {
        state.remove(channel.number)
        return
      }
      let minutes = Int64(channel.callbacks.minimumPingMinutes ?? 0)
      let interval = max(configuration.pingInterval, minutes * 60_000)
      var entry = Entry(prefix: channel.prefix, url: url, interval: interval, due: now + interval)
      // A channel that comes back is not due later than it was.
      if let earlier = state.entries[channel.number], earlier.url == url, earlier.interval == interval {
        entry.due = earlier.due
      }
      state.remove(channel.number)
      state.entries[channel.number] = entry
      var target = state.targets[url] ?? Target()
      target.channels.insert(channel.number)
      target.next = min(target.next, target.time(of: entry))
      state.targets[url] = target
    }
  }

  /// A channel has ended.
  package func ended(_ channel: ChannelNumber) {
    state.withLock { $0.remove(channel) }
  }

  package var count: Int { state.withLock { $0.entries.count } }

  /// The batches that are due, for hosts that are not being called. Each has to be given to ``send(_:)``.
  package func due(now: Int64, isConnected: (ChannelNumber) -> Bool) -> [Batch] {
    state.withLock { state in
      var batches: [Batch] = []
      // The longest wait first.
      let due = state.targets.filter { $0.value.next <= now }.sorted { $0.value.next < $1.value.next }
      for (url, target) in due {
        guard state.busyHosts.count < configuration.callbacksAtOnce else { break }
        guard !state.busyHosts.contains(url.host) else { continue }
        var tokens: [(channel: ChannelNumber, prefix: String)] = []
        var first: Entry?
        for channel in target.channels {
          var entry = state.entries[channel]!
          if entry.due <= now {
            // One that is not connected is due when it comes back.
            guard isConnected(channel) else { continue }
            tokens.append((channel, entry.prefix))
            entry.due = now + entry.interval
            state.entries[channel] = entry
          }
          if entry.due < first?.due ?? .max { first = entry }
        }
        var target = target
        target.delay = Double.random(in: 0...0.1)
        target.next = first.map { target.time(of: $0) } ?? .max
        state.targets[url] = target
        guard !tokens.isEmpty else { continue }
        state.busyHosts.insert(url.host)
        batches.append(Batch(url: url, tokens: tokens))
      }
      return batches
    }
  }

  /// Forgets channels that were not connected for a day.
  package func sweep(now: Int64, isConnected: (ChannelNumber) -> Bool) {
    state.withLock { state in
      for (channel, entry) in state.entries
      where entry.due < now - RelayConfiguration.day && !isConnected(channel) {
        state.remove(channel)
      }
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
