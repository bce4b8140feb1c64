import PushChannels
import TestSupport
import Testing

struct ChannelPhaseTests {
  typealias Input = ChannelPhase.Input

  /// The documented table: state, call or notification, next state. Error in state Open is in the text
  /// of the Opened notification.
  static let documented: [(from: ChannelPhase, input: Input, to: ChannelPhase)] = [
    (.prepared, .connect, .connecting),
    (.connecting, .error, .failed),
    (.connecting, .opened, .open),
    (.open, .disconnect, .disconnecting),
    (.open, .message, .open),
    (.open, .pingFailed, .open),
    (.open, .closed, .disconnected),
    (.open, .error, .failed),
    (.disconnecting, .message, .disconnecting),
    (.disconnecting, .pingFailed, .disconnecting),
    (.disconnecting, .closed, .disconnected),
    (.disconnected, .connect, .connecting),
    (.failed, .connect, .connecting),
  ]

  @Test func theDocumentedTransitionsAreTaken() {
    for row in Self.documented {
      let result = row.from.applying(row.input)
      #expect(result.phase == row.to, "\(row)")
      switch row.input {
      case .connect: #expect(result.action == .open, "\(row)")
      case .disconnect: #expect(result.action == .close, "\(row)")
      default: #expect(result.action == .show, "\(row)")
      }
    }
  }

  /// Error while disconnecting is not in the documented table: the channel ends as the app wished.
  @Test func noOtherTransitionExists() {
    for phase in ChannelPhase.allCases {
      for input in Input.allCases where !Self.documented.contains(where: { $0 == (phase, input, $0.to) }) {
        let (next, action) = phase.applying(input)
        if (phase, input) == (.disconnecting, .error) {
          #expect((next, action) == (.disconnected, .showClosed))
        } else {
          #expect(next == phase, "\(phase) \(input)")
          #expect(
            action == (input == .connect || input == .disconnect ? .showMisuse : .ignore), "\(phase) \(input)"
          )
        }
      }
    }
  }

  @Test func everyPhaseHasADocumentedValue() {
    #expect(ChannelPhase.allCases.map(\.state) == [.none, .none, .open, .open, .closed, .error])
    #expect(ChannelState.allCases.map(\.rawValue) == [0, 1, 2, 3])
  }

  /// A million random sequences, each checked by what an app may see: between two connects, one
  /// `opened`, then messages and failed pings, then one end; or an error at once.
  @Test func anAppSeesLivesInOrder() {
    var generator = SplitMix64(seed: 0x6f70_656e)
    for sequence in 0..<1_000_000 {
      var phase = ChannelPhase.prepared
      var life = Life.none
      for _ in 0..<(1 + Int(generator.next() % 16)) {
        let input = Input.allCases[Int(generator.next() % UInt64(Input.allCases.count))]
        let (next, action) = phase.applying(input)
        let isLegal: Bool
        switch action {
        case .open: isLegal = input == .connect && life.begin()
        case .close: isLegal = input == .disconnect && life == .open
        case .show: isLegal = life.see(input)
        case .showClosed: isLegal = life.see(.closed)
        case .showMisuse, .ignore: isLegal = next == phase
        }
        guard isLegal, life.phases.contains(next) else {
          Issue.record(
            "sequence \(sequence): \(phase) \(input) gave \(next), \(action) with the app at \(life)")
          return
        }
        phase = next
      }
    }
  }

  /// What an app knows of its channel, from what it was shown alone.
  enum Life {
    case none, begun, open, ended

    mutating func begin() -> Bool {
      defer { self = .begun }
      return self == .none || self == .ended
    }

    mutating func see(_ input: Input) -> Bool {
      switch (self, input) {
      case (.begun, .opened): self = .open
      case (.open, .message), (.open, .pingFailed): break
      case (.begun, .error), (.open, .error), (.open, .closed): self = .ended
      default: return false
      }
      return true
    }

    var phases: Set<ChannelPhase> {
      switch self {
      case .none: [.prepared]
      case .begun: [.connecting]
      case .open: [.open, .disconnecting]
      case .ended: [.disconnected, .failed]
      }
    }
  }
}
