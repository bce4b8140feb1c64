import Foundation
import Locks

/// What the page shows, in parts. Each has a number that grows when it changes, so that a tab gets what it does not have.
final class Board: Sendable {
  /// A part of what is shown.
  enum Name: String, CaseIterable {
    /// What the app is, and says of itself; it stays when the app is sealed.
    case app
    case launcher, apps, traffic, certificates, messages, inbox
  }

  struct Part: Sendable {
    var number: UInt64
    /// JSON, or `null`.
    var json: [UInt8]
  }

  private struct State {
    var parts: [Name: Part] = [:]
    var number: UInt64 = 0
    /// Counts the seals: what was read before one is shown no more.
    var epoch: UInt64 = 0
    var isShown = false
    var tabs: [UInt64: AsyncStream<Void>.Continuation] = [:]
    var lastTab: UInt64 = 0

    mutating func set(_ name: Name, _ json: [UInt8]) {
      guard parts[name]?.json != json else { return }
      number += 1
      parts[name] = Part(number: number, json: json)
    }

    func wake() { for tab in tabs.values { tab.yield() } }
  }

  /// What a tab is told that has to make room for another one.
  static let displaced = Array("{\"part\":\"displaced\",\"number\":0,\"value\":null}\n".utf8)

  private let state = Guarded(State())
  private static let nothing = Array("null".utf8)

  /// The time at which something is read that is to be shown, unless a seal comes between.
  var epoch: UInt64? { state.withLock { $0.isShown ? $0.epoch : nil } }

  /// Whether a tab is there.
  var hasTabs: Bool { state.withLock { !$0.tabs.isEmpty } }

  /// The app may be shown from now on. Returns the time for what is shown.
  func begin() -> UInt64 {
    state.withLock { state in
      state.isShown = true
      return state.epoch
    }
  }

  /// Nothing but the app's own word is left when this returns.
  func seal() {
    state.withLock { state in
      guard state.isShown else { return }
      state.isShown = false
      state.epoch += 1
      for name in Name.allCases where name != .app { state.set(name, Self.nothing) }
      state.wake()
    }
  }

  /// Shows parts. Those of before a seal are not; without a time they always are.
  func show(_ parts: [(Name, any Encodable)], of epoch: UInt64? = nil) {
    let texts = parts.map { ($0, Self.json($1)) }
    state.withLock { state in
      if let epoch, epoch != state.epoch || !state.isShown { return }
      let before = state.number
      for (name, json) in texts { state.set(name, json) }
      if state.number != before { state.wake() }
    }
  }

  /// Lines for a tab that has these numbers of parts; empty when it has everything.
  func lines(beyond numbers: inout [String: UInt64]) -> [UInt8] {
    let parts = state.withLock { $0.parts }
    var lines: [UInt8] = []
    for name in Name.allCases {
      guard let part = parts[name], numbers[name.rawValue] != part.number else { continue }
      numbers[name.rawValue] = part.number
      lines += Array(#"{"part":"\#(name.rawValue)","number":\#(part.number),"value":"#.utf8) + part.json
      lines += Array("}\n".utf8)
    }
    return lines
  }

  /// A tab's number, and a stream that wakes it at once and then whenever something has changed, until ``close(_:)``.
  func open() -> (number: UInt64, changes: AsyncStream<Void>) {
    let (changes, tab) = AsyncStream.makeStream(of: Void.self, bufferingPolicy: .bufferingNewest(1))
    return state.withLock { state in
      state.lastTab += 1
      state.tabs[state.lastTab] = tab
      tab.yield()
      return (state.lastTab, changes)
    }
  }

  func close(_ tab: UInt64) { state.withLock { $0.tabs.removeValue(forKey: tab) }?.finish() }

  private static func json(_ value: any Encodable) -> [UInt8] {
    let encoder = JSONEncoder()
    // The same value is the same text.
    encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
    return (try? encoder.encode(value)).map { Array($0) } ?? nothing
  }
}
