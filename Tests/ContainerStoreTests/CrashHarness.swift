import ContainerStore
import Foundation
import OpenDynamicsTesting
import TestSupport
import Testing

/// The states of something on a disk in the order in which they came about. Times are counts of the disk's operations.
struct History<State> {
  private struct Moment {
    var state: State
    /// When the call began that led to it: nothing of it can be on the disk before.
    var begun: Int
    /// When the container first said that it is durable.
    var durable: Int?
  }

  private var moments: [Moment]

  init(_ first: State, durable: Int) { moments = [Moment(state: first, begun: 0, durable: durable)] }

  var last: State { moments.last!.state }

  mutating func append(_ state: State, begun: Int) {
    moments.append(Moment(state: state, begun: begun, durable: nil))
  }

  /// The container said that everything so far is durable.
  mutating func acknowledge(at time: Int) {
    for i in moments.indices.reversed() {
      if moments[i].durable != nil { break }
      moments[i].durable = time
    }
  }

  /// What may be found after a crash: the last state that was durable, and all that were begun since.
  func possible(after time: Int) -> [State] {
    let first = moments.lastIndex { $0.durable ?? .max <= time } ?? 0
    let later = moments[(first + 1)...].prefix { $0.begun < time }
    return ([moments[first]] + later).map(\.state)
  }
}

/// What a workload did to a disk, and every state that it passed through.
final class RecordedLife {
  /// The key that always opens the container.
  static let constantKey: UInt8 = 7
  /// Others that come and go.
  static let otherKeys: [UInt8] = [8, 9]

  let durability: Container.Durability
  private let io = RecordingIO()
  private(set) var container: Container
  private(set) var trees: History<Tree>
  private(set) var keys: History<Set<UInt8>>
  private(set) var changesKeys = false
  /// When the container's creation returned.
  let creation: Int
  private(set) var log: [RecordingIO.Operation] = []

  init(_ durability: Container.Durability, _ workload: (RecordedLife) throws -> Void) throws {
    self.durability = durability
    container = try Container.create(
      io: io, credential: testCredential(Self.constantKey), options: testOptions(durability))
    creation = io.log.count
    trees = History([:], durable: creation)
    keys = History([Self.constantKey], durable: creation)
    try workload(self)
    try container.close()
    log = io.log
  }

  /// A call that makes one commit.
  func change(_ body: (Container) throws -> Void) throws {
    let begun = io.log.count
    try body(container)
    trees.append(try container.treeWithLinks(), begun: begun)
    if durability == .full { trees.acknowledge(at: io.log.count) }
  }

  func synchronize() throws {
    try container.synchronize()
    trees.acknowledge(at: io.log.count)
  }

  func reopen() throws {
    try container.close()
    if durability != .none { trees.acknowledge(at: io.log.count) }
    container = try Container.open(
      io: io, credential: testCredential(Self.constantKey), options: testOptions(durability))
    // What an opening has shown stays.
    trees.acknowledge(at: io.log.count)
  }

  func addKey(_ key: UInt8) throws {
    changesKeys = true
    let begun = io.log.count
    try container.addKey(testCredential(key))
    keys.append(keys.last.union([key]), begun: begun)
    keys.acknowledge(at: io.log.count)
  }

  func removeKey(_ key: UInt8) throws {
    let begun = io.log.count
    try container.removeKey(testCredential(key))
    keys.append(keys.last.subtracting([key]), begun: begun)
    keys.acknowledge(at: io.log.count)
  }
}

extension Container {
  /// The tree, and besides it, under keys that are no paths, where links lead, which names are of one file, extended attributes, and
  /// what messages in the outbox hold.
  fileprivate func treeWithLinks() throws -> Tree {
    var tree = try tree()
    var names: [UInt64: [String]] = [:]
    for file in try list("/", recursively: true) {
      let path = "/" + file.path
      if file.attributes.kind == .symbolicLink {
        tree["target of \(path)"] = Array(try destinationOfSymbolicLink(path).utf8)
      }
      if file.attributes.linkCount > 1 {
        names[file.attributes.id, default: []].append("\(path) of \(file.attributes.linkCount)")
      }
      for (name, value) in try extendedAttributes(at: path) { tree["\(name) of \(path)"] = value }
    }
    for entry in try outboxEntries() {
      tree["message \(entry.number)"] = try outboxMessage(entry.number) + readOutbox(entry.number)
    }
    for paths in names.values {
      tree["one file: " + paths.sorted().joined(separator: ", ")] = []
    }
    return tree
  }
}

/// Crashes a recorded life at every operation, loses what a disk may lose, and checks what is found.
struct CrashHarness {
  let life: RecordedLife

  /// What a disk may show.
  private struct Possible {
    var trees: [Tree]
    var keys: [Set<UInt8>]
    /// The container's creation had not returned.
    var mayBeMissing = false
  }

  /// Traces of a crash that are no loss. A torn copy of the superblock is one of them: see CONTAINER-FORMAT.md, "Choosing".
  static func isTrace(_ finding: Finding) -> Bool {
    switch finding.kind {
    case .superblockSlotTorn, .superblockSlotOutdated: true
    case .notClosed, .tornTail, .unknownFile: finding.severity == .note
    default: false
    }
  }

  private func possible(after time: Int) -> Possible {
    Possible(
      trees: life.trees.possible(after: time), keys: life.keys.possible(after: time),
      mayBeMissing: time < life.creation)
  }

  // MARK: Plans

  /// Every place at least once, and of all places with all ways to lose as many as fit.
  private func plans(limit: Int) -> [CrashPlan] {
    var random = SplitMix64(seed: SplitMix64.testSeed)
    var first: [CrashPlan] = []
    var others: [CrashPlan] = []
    for time in 0...life.log.count {
      var losses = CrashPlan.Loss.certain
      for _ in 0..<(TestEffort.count(3, long: 3, all: 12)) { losses.append(.some(seed: random.next())) }
      if time > 0, case .write = life.log[time - 1] {
        for _ in 0..<(TestEffort.count(2, long: 2, all: 6)) { losses.append(.tornLast(seed: random.next())) }
      }
      losses.shuffle(using: &random)
      first.append(CrashPlan(operationCount: time, loss: losses[0]))
      others += losses.dropFirst().map { CrashPlan(operationCount: time, loss: $0) }
    }
    others.shuffle(using: &random)
    return Array((first.shuffled(using: &random) + others).prefix(limit))
  }

  /// Crashes once. Returns what is wrong, and how many disks were tried.
  func crash(limit: Int) -> (complaints: [String], count: Int) {
    let plans = plans(limit: limit)
    let complaints = plans.enumerated().compactMap { i, plan in
      check(plan.replay(life.log), possible(after: plan.operationCount), variant: i).map { "\(plan): \($0)" }
    }
    return (complaints, plans.count)
  }

  /// Crashes, lets the container recover and crashes again at each operation of that. After the death of a process alone, what it
  /// wrote last is still not durable when the power fails next.
  func crashTwice(limit: Int) -> (complaints: [String], count: Int) {
    var random = SplitMix64(seed: SplitMix64.testSeed + 1)
    var complaints: [String] = []
    var count = 0
    for plan in plans(limit: .max).shuffled(using: &random) where plan.operationCount >= life.creation {
      if count >= limit { break }
      let found = plan.replay(life.log)
      let io = RecordingIO(found)
      do {
        let opened = try Container.open(
          io: io, credential: testCredential(RecordedLife.constantKey), options: testOptions(life.durability))
        let recovery = io.log
        let shown = Possible(
          trees: [try opened.treeWithLinks()], keys: possible(after: plan.operationCount).keys)
        let processDied = plan.loss == .nothing
        let before = processDied ? Array(life.log.prefix(plan.operationCount)) : []
        let start = processDied ? DiskImage() : found
        for again in 0...recovery.count {
          var losses: [CrashPlan.Loss] = CrashPlan.Loss.certain + [.some(seed: random.next())]
          if again > 0, case .write = recovery[again - 1] { losses.append(.tornLast(seed: random.next())) }
          let second = CrashPlan(
            operationCount: before.count + again, loss: losses.randomElement(using: &random)!)
          // What the opening returned with is what was accepted for good.
          let possible = again == recovery.count ? shown : possible(after: plan.operationCount)
          if let complaint = check(
            second.replay(before + recovery, from: start), possible, variant: count)
          {
            complaints.append("\(plan), then \(second) of \(before.count + recovery.count): \(complaint)")
          }
          count += 1
        }
      } catch {
        complaints.append("\(plan): \(error)")
      }
    }
    return (complaints, count)
  }

  // MARK: Checks

  /// Opens what a crash left, goes on, and opens it again after a clean end or another crash. Returns what is wrong.
  private func check(_ found: DiskImage, _ possible: Possible, variant: Int) -> String? {
    do {
      let io = RecordingIO(found)
      let container = try Container.open(
        io: io, credential: testCredential(RecordedLife.constantKey), options: testOptions(life.durability))
      var tree = try container.treeWithLinks()
      guard possible.trees.contains(tree) else {
        return "shows a state that never was, or lost one: \(tree.mapValues { $0?.count ?? -1 })"
      }
      let fitting = try keys(of: io)
      guard possible.keys.contains(fitting) else {
        return "keys \(fitting.sorted()), expected one of \(possible.keys.map { $0.sorted() })"
      }
      let findings = container.findings + (try container.verify().findings)
      if let finding = findings.first(where: { !Self.isTrace($0) }) { return "reports \(finding)" }
      try goOn(container, &tree, seed: UInt64(variant))
      if variant % 2 == 0 {
        try container.close()
        if let problem = try checkAgain(io.image, tree) { return "after going on: " + problem }
        return nil
      }
      let plan = CrashPlan(operationCount: io.log.count, loss: CrashPlan.Loss.certain[variant % 5])
      let again = plan.replay(io.log, from: found)
      return try checkAgain(again, tree).map { "after going on and another crash, \(plan.loss): " + $0 }
    } catch ContainerError.notAContainer where possible.mayBeMissing {
      return nil
    } catch {
      return "\(error)"
    }
  }

  /// New contents beside old ones, in place of old ones, and old ones gone: what was there must not suffer.
  private func goOn(_ container: Container, _ tree: inout Tree, seed: UInt64) throws {
    // Those of which only the tree tells: what becomes of other names and attributes then needs no second telling.
    let told = tree.keys.filter { !$0.hasPrefix("/") }
    let files = tree.keys.filter { path in
      path.hasPrefix("/") && tree[path]! != nil && !told.contains { $0.contains(path) }
    }.sorted()
    for path in ["/after"] + files.prefix(1) {
      let bytes = testBytes(3000, seed: seed)
      try container.write(bytes, to: path)
      tree[path] = bytes
    }
    if let last = files.dropFirst().last {
      try container.remove(last)
      tree.removeValue(forKey: last)
    }
    try container.synchronize()
  }

  private func checkAgain(_ found: DiskImage, _ tree: Tree) throws -> String? {
    let io = RecordingIO(found)
    let container = try Container.open(
      io: io, credential: testCredential(RecordedLife.constantKey), options: testOptions())
    let shown = try container.treeWithLinks()
    if shown != tree { return "shows \(shown.mapValues { $0?.count ?? -1 })" }
    try container.close()
    let report = try Container.verify(
      io: io, credential: testCredential(RecordedLife.constantKey), options: testOptions())
    return report.findings.first.map { "verify reports \($0)" }
  }

  private func keys(of io: RecordingIO) throws -> Set<UInt8> {
    var fitting: Set = [RecordedLife.constantKey]
    guard life.changesKeys else { return fitting }
    for key in RecordedLife.otherKeys {
      do {
        _ = try Container.open(
          io: io, credential: testCredential(key), mode: .readOnly, options: testOptions())
        fitting.insert(key)
      } catch ContainerError.wrongKey {}
    }
    return fitting
  }
}
