/// Work of several owners, of which each has a turn after the others: so that what one wants, however much it is and over however many
/// connections, delays the others by one turn. Who takes longer than a turn misses as many of the next.
struct FairTurns<Owner: Hashable, Work> {
  /// Nanoseconds.
  let turnTime: UInt64
  /// Turns that an owner may owe.
  private static var debtMax: UInt64 { 100 }
  private var work: [Owner: [Work]] = [:]
  /// Owners with work, in the order of their turns.
  private var ring: [Owner] = []
  private var debts: [Owner: UInt64] = [:]

  init(turnTime: UInt64) { self.turnTime = turnTime }

  var isEmpty: Bool { ring.isEmpty }

  mutating func add(_ new: Work, of owner: Owner) {
    if work[owner] == nil { ring.append(owner) }
    work[owner, default: []].append(new)
  }

  /// What is done next; nil when there is nothing.
  mutating func next() -> (owner: Owner, work: Work)? {
    while let owner = ring.first {
      ring.removeFirst()
      if let debt = debts[owner], debt >= turnTime, !ring.isEmpty {
        debts[owner] = debt - turnTime
        ring.append(owner)
        continue
      }
      guard let first = work[owner]?.removeFirst() else { continue }
      if work[owner]?.isEmpty == true { work[owner] = nil } else { ring.append(owner) }
      return (owner, first)
    }
    return nil
  }

  /// The work that was next has taken so long, and so much of it is left.
  mutating func took(_ nanoseconds: UInt64, of owner: Owner, rest: Work?) {
    if let rest {
      if work[owner] == nil { ring.append(owner) }
      work[owner, default: []].insert(rest, at: 0)
    }
    // Where nobody waits, nobody was delayed.
    guard !ring.isEmpty else {
      debts = [:]
      return
    }
    let debt = (debts[owner] ?? 0) + nanoseconds - min(nanoseconds, turnTime)
    debts[owner] = debt == 0 ? nil : min(debt, Self.debtMax * turnTime)
  }
}
