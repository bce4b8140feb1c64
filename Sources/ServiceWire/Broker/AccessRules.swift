/// Who may call whom: the rules that allow and deny.
///
/// The rule that says most about a call decides: one that names both apps, then one that names either of them, then one that
/// names none. Of rules that say as much a denial decides. Where no rule fits, the call is allowed.
package struct AccessRules: Sendable, Equatable {
  /// Nil means any.
  private struct Pair: Hashable {
    let consumer: String?
    let provider: String?
  }

  private var denials: Set<Pair> = []
  private var permissions: Set<Pair> = []

  package init(_ rules: some Sequence<WireRule> = []) {
    for rule in rules { insert(rule) }
  }

  /// Passes over rules that are about something else.
  mutating func insert(_ rule: WireRule) {
    switch rule.effect {
    case .deny: denials.insert(Self.pair(rule))
    case .allow: permissions.insert(Self.pair(rule))
    case .disable, .UNRECOGNIZED: break
    }
  }

  mutating func remove(_ rule: WireRule) {
    switch rule.effect {
    case .deny: denials.remove(Self.pair(rule))
    case .allow: permissions.remove(Self.pair(rule))
    case .disable, .UNRECOGNIZED: break
    }
  }

  private static func pair(_ rule: WireRule) -> Pair {
    Pair(
      consumer: rule.hasConsumer ? rule.consumer : nil, provider: rule.hasProvider ? rule.provider : nil)
  }

  /// Whether the consumer is kept from the provider altogether; without one, whether somebody is of whom no rule says anything. Costs the
  /// same for any number of rules. Both are checked ids.
  package func denies(_ consumer: String?, _ provider: String) -> Bool {
    guard !denials.isEmpty else { return false }
    let ofAny = Pair(consumer: nil, provider: provider)
    let levels =
      if let consumer {
        [
          [Pair(consumer: consumer, provider: provider)], [Pair(consumer: consumer, provider: nil), ofAny],
          [Pair(consumer: nil, provider: nil)],
        ]
      } else {
        [[ofAny], [Pair(consumer: nil, provider: nil)]]
      }
    for pairs in levels {
      if pairs.contains(where: denials.contains) { return true }
      if pairs.contains(where: permissions.contains) { return false }
    }
    return false
  }
}
