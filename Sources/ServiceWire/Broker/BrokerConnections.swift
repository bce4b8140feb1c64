import Foundation

/// Who is charged for a connection: a sandbox as a whole, else a process.
package enum BrokerOwner: Hashable, Sendable {
  case sandbox(String)
  case process(Int32)
}

struct BrokerConnection: Sendable {
  enum Phase: Sendable, Equatable {
    case handshaking
    case awaitingEnrolment(publicKey: Data)
    /// Waits for an administrator's approval (``PendingEnrolments``).
    case pending
    case enrolled(appID: String)
    /// As ``enrolled(appID:)``, with the app's presence key: it asks nothing.
    case standingIn(appID: String)
    case attending(administers: Bool)
  }

  fileprivate(set) var phase = Phase.handshaking
  let opened: UInt64
  /// The peer's process, as the kernel reports it.
  let process: Int32
  let origin: BrokerOrigin

  init(opened: UInt64, process: Int32, origin: BrokerOrigin) {
    self.opened = opened
    self.process = process
    self.origin = origin
  }

  var owner: BrokerOwner { origin == .plain ? .process(process) : .sandbox(origin.label) }
  var appID: String? {
    switch phase {
    case .enrolled(let appID), .standingIn(let appID): appID
    case .handshaking, .awaitingEnrolment, .pending, .attending: nil
    }
  }
  var isAttending: Bool { if case .attending = phase { true } else { false } }
  var hasBegun: Bool { appID != nil || isAttending || phase == .pending }
}

/// The connections. Each owner has a share of them and no more.
struct BrokerConnections: Sendable {
  private let limits: BrokerLimits
  private var all: [ConnectionNumber: BrokerConnection] = [:]

  private static let countOfOwnerMin = 8

  init(limits: BrokerLimits) { self.limits = limits }

  subscript(number: ConnectionNumber) -> BrokerConnection? { all[number] }

  var count: Int { all.count }

  func numbers(of owner: BrokerOwner) -> [ConnectionNumber] {
    all.filter { $0.value.owner == owner }.map(\.key)
  }

  /// Adds a connection. Returns false if its owner may have no more.
  mutating func insert(_ number: ConnectionNumber, _ connection: BrokerConnection) -> Bool {
    precondition(all[number] == nil, "the number of a connection is used once")
    let owner = connection.owner
    guard mayHaveAnother(owner, of: limits.connectionCountMax, where: { _ in true }),
      connection.origin == .plain
        || all.values.count(where: { $0.owner == owner }) < limits.sandboxConnectionCountMax
    else { return false }
    all[number] = connection
    return true
  }

  mutating func remove(_ number: ConnectionNumber) -> BrokerConnection? { all.removeValue(forKey: number) }

  mutating func setPhase(_ phase: BrokerConnection.Phase, of number: ConnectionNumber) {
    all[number]?.phase = phase
  }

  /// Whether an owner may have one more connection of a kind with a limit of `countMax`: at most
  /// half of what others leave, and always a few.
  private func mayHaveAnother(
    _ owner: BrokerOwner, of countMax: Int, where isOfKind: (BrokerConnection) -> Bool
  ) -> Bool {
    let kind = all.values.filter(isOfKind)
    let own = kind.count { $0.owner == owner }
    return kind.count < countMax
      && own < max(Self.countOfOwnerMin, (countMax - (kind.count - own)) / 2)
  }

  /// Whether the connection's owner may have one more that attends.
  func mayAttend(_ number: ConnectionNumber) -> Bool {
    guard let owner = all[number]?.owner else { return false }
    return mayHaveAnother(owner, of: limits.attendingCountMax, where: \.isAttending)
  }

  // MARK: Beginning

  var hasBeginning: Bool { all.values.contains { !$0.hasBegun } }

  /// The connection to close when too many have not begun: the oldest one of the owner that has the
  /// most of them, of several owners at random. So an owner that connects fast keeps no other out.
  func surplus() -> ConnectionNumber? {
    let beginning = all.filter { !$0.value.hasBegun }
    guard beginning.count > limits.beginningCountMax else { return nil }
    let counts = Dictionary(grouping: beginning.keys) { all[$0]?.owner }
    let most = counts.values.map(\.count).max()
    return counts.values.filter { $0.count == most }.randomElement()?.min()
  }

  /// The connections that did not begin in time, in the order of their numbers.
  func overdue(now: UInt64) -> [ConnectionNumber] {
    all.filter { !$0.value.hasBegun && now >= $0.value.opened + limits.beginningTime }.keys.sorted()
  }
}
