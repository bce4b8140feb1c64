import Locks

/// The arrivals of one opening that have not ended.
final class ArrivalsUnderWay: Sendable {
  private let keys = Guarded<Set<ArrivalKey>>([])

  /// Registers an arrival; returns false if one with this key is registered already.
  func begin(_ key: ArrivalKey) -> Bool { keys.withLock { $0.insert(key).inserted } }
  func end(_ key: ArrivalKey) { keys.withLock { _ = $0.remove(key) } }
  func contains(_ key: ArrivalKey) -> Bool { keys.withLock { $0.contains(key) } }
}

/// The message is arriving already, and was not suspended yet.
package struct ArrivalUnderWay: Error {}
