import ServiceValues

/// Which apps run, and which of them is in front. The app in front is always one that runs.
struct AppPresence: Sendable {
  struct Running: Sendable {
    let connection: ConnectionNumber
    let process: Int32
    fileprivate(set) var state: WireAppState
    /// It has shown the app's presence key: it asks nothing, and gives way to the app.
    let standsIn: Bool
    /// Its container is locked, and a process that stands in for the app takes its place.
    fileprivate(set) var givesWay = false
    /// What it has on its way, as it says while the launcher runs.
    fileprivate(set) var traffic: WireTraffic?
    /// When connections of the app took the place of earlier ones, the last times.
    fileprivate(set) var replacements: [UInt64] = []
    /// The apps of which it was told over this connection that they wait for it, since it ran last.
    fileprivate var waitingPeers: Set<String> = []
  }

  /// Connections of an app that take each other's place so often within this time (ms) are of two copies.
  static let replacementCountMax = 3
  static let replacementTime: UInt64 = 60_000

  private(set) var running: [String: Running] = [:]
  private(set) var front: String?

  /// The connections of all apps that run with their containers, in the order of their ids.
  var connections: [(appID: String, number: ConnectionNumber)] {
    running.filter { !$0.value.standsIn }.sorted { $0.key < $1.key }.map { ($0.key, $0.value.connection) }
  }

  func state(of appID: String) -> WireAppState { running[appID]?.state ?? .notRunning }

  /// Whether the app runs; true for nil, since nobody may be in front at any time.
  func mayBeInFront(_ appID: String?) -> Bool { appID.map { running[$0] != nil } ?? true }

  /// When connections of the app took each other's place, if another one takes it now; empty for an app
  /// that does not run. What stands in for an app is no copy of it.
  func replacements(of appID: String, now: UInt64) -> [UInt64] {
    guard let earlier = running[appID], !earlier.standsIn, !earlier.givesWay else { return [] }
    return earlier.replacements.filter { now < $0 + Self.replacementTime } + [now]
  }

  mutating func begin(
    _ appID: String, _ connection: ConnectionNumber, process: Int32, _ state: WireAppState,
    standsIn: Bool = false, replacements: [UInt64] = []
  ) {
    running[appID] = Running(
      connection: connection, process: process, state: state, standsIn: standsIn, replacements: replacements)
  }

  mutating func setState(_ state: WireAppState, of appID: String) {
    running[appID]?.state = state
    if state == .running { running[appID]?.waitingPeers = [] }
  }

  /// Whether the launcher runs, which is shown what all apps have on their way.
  var hasLauncher: Bool { running[ApplicationID.launcher.text]?.standsIn == false }

  /// Returns whether this is another one than before. Without a launcher it is not kept.
  mutating func setTraffic(_ traffic: WireTraffic, of appID: String) -> Bool {
    guard hasLauncher, running[appID]?.traffic != traffic else { return false }
    running[appID]?.traffic = traffic
    return true
  }

  mutating func forgetTraffic() { for appID in running.keys { running[appID]?.traffic = nil } }

  mutating func setGivesWay(_ givesWay: Bool, _ appID: String) { running[appID]?.givesWay = givesWay }

  /// Drops what is known of an app that an administrator forgets: another one may take its id.
  mutating func forgetWaiting(_ peer: String) {
    for appID in running.keys { running[appID]?.waitingPeers.remove(peer) }
  }

  /// Notes that `peer` waits for an app that is locked or suspended. Returns false when that is known.
  mutating func noteWaiting(_ peer: String, for appID: String) -> Bool {
    running[appID]?.waitingPeers.insert(peer).inserted ?? false
  }

  /// Ends an app. Returns false if it does not run over this connection.
  mutating func end(_ appID: String, _ connection: ConnectionNumber) -> Bool {
    guard running[appID]?.connection == connection else { return false }
    running[appID] = nil
    if front == appID { front = nil }
    return true
  }

  mutating func setFront(_ appID: String?) {
    precondition(mayBeInFront(appID), "the app in front runs")
    front = appID
  }
}

extension WireAppState {
  /// Known, and not that the app does not run.
  var isOfOneThatRuns: Bool {
    switch self {
    case .running, .suspended, .locked: true
    case .notRunning, .hidden, .UNRECOGNIZED: false
    }
  }
}
