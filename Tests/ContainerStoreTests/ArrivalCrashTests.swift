import ContainerStore
import OpenDynamicsTesting
import Testing

/// One arrival on a disk that crashes after every operation, in every certain way and some others.
struct ArrivalCrashTests {
  /// What happened when, in operations of the disk.
  private struct Recording {
    var log: [RecordingIO.Operation] = []
    var parcel: Parcel
    /// The container is there from here on.
    var creation = 0
    /// What was kept at which time, ascending.
    var received: [(time: Int, byteCount: UInt64)] = []
    var commit: Range<Int>?
    var discard: Range<Int>?

    init(_ durability: Container.Durability, commits: Bool) throws {
      parcel = Parcel(sizes: [700, 0, 1_200_000, 16_384, 1 << 20, 0, 9])
      let fixture = try Fixture(durability: durability)
      // Something of the app's own, whose changes share the journal.
      try fixture.container.write([1, 2, 3], to: "/own")
      try fixture.container.synchronize()
      creation = fixture.io.log.count
      let arrival = try fixture.container.beginArrival(parcel.message)
      try parcel.addFiles(to: arrival)
      let contents = parcel.contents
      var position = 0
      while position < (commits ? contents.count : 1_100_000) {
        let piece = contents[position..<min(position + 550_000, contents.count)]
        try piece.withUnsafeBytes { try arrival.append($0) }
        position = piece.endIndex
        received.append((fixture.io.log.count, arrival.received))
      }
      let begun = fixture.io.log.count
      if commits {
        let queued = try arrival.commit()
        commit = begun..<fixture.io.log.count
        try fixture.container.write([4], to: "/own")
        try fixture.container.endQueued(queued.arrival)
        // Its segments go, of which the commits before spoke that were written without a sync: those must not be looked at any more.
        try fixture.container.remove(try #require(queued.directory))
        try fixture.container.synchronize()
        try fixture.container.write([5], to: "/own")
        try fixture.container.synchronize()
      } else {
        try arrival.discard()
        try fixture.container.synchronize()
        discard = begun..<fixture.io.log.count
      }
      try fixture.container.close()
      log = fixture.io.log
    }

    var plans: [CrashPlan] {
      var random = SplitMix64(seed: testSeed)
      var plans: [CrashPlan] = []
      for time in creation...log.count {
        var losses = CrashPlan.Loss.certain
        for _ in 0..<(runsLong ? 8 : 1) { losses.append(.some(seed: random.next())) }
        if case .write = log[time - 1] { losses.append(.tornLast(seed: random.next())) }
        plans += losses.map { CrashPlan(operationCount: time, loss: $0) }
      }
      return plans
    }

    /// What is wrong with what a crash left.
    func complaint(after plan: CrashPlan, _ durability: Container.Durability) throws -> String? {
      let io = RecordingIO(plan.replay(log))
      let container = try Container.open(
        io: io, credential: testCredential(), options: testOptions(durability))
      let findings = container.findings + (try container.verify().findings)
      if let finding = findings.first(where: { !CrashHarness.isTrace($0) }) { return "reports \(finding)" }
      let isThere = try parcel.wasDelivered(to: container)
      if let commit, durability != .none, plan.operationCount >= commit.upperBound, !isThere {
        return "what was committed is lost"
      }
      if isThere {
        guard let commit, plan.operationCount > commit.lowerBound else { return "is there before its commit" }
        if let complaint = try allIsThere(in: container, plan) { return complaint }
      } else {
        if let complaint = try goesOn(in: container, plan) { return complaint }
      }
      guard try container.staged() == [] else { return "staging is left" }
      try container.close()
      let report = try Container.verify(io: io, credential: testCredential(), options: testOptions())
      return report.findings.first.map { "verify reports \($0)" }
    }

    private func allIsThere(in container: Container, _ plan: CrashPlan) throws -> String? {
      guard try container.staged() == [] else { return "staging is left after the commit" }
      guard let queued = try container.queuedMessages().first else {
        // It was ended later.
        return plan.operationCount > commit!.upperBound ? nil : "the ledger has it and the queue has not"
      }
      return try parcel.complaint(about: queued, in: container)
    }

    private func goesOn(in container: Container, _ plan: CrashPlan) throws -> String? {
      guard try container.attributes(at: "/Inbox") == nil, try container.queuedMessages().isEmpty else {
        return "something of it is visible"
      }
      let arrival = try container.beginArrival(parcel.message)
      let kept = received.last { $0.time <= plan.operationCount }?.byteCount ?? 0
      if plan.loss == .nothing, discard == nil, arrival.received < kept {
        return "\(arrival.received) of \(kept) bytes are kept after the death of the process"
      }
      if let discard, plan.operationCount >= discard.upperBound, arrival.received > 0 {
        return "what was discarded is back"
      }
      try parcel.addFiles(to: arrival)
      try parcel.append(to: arrival, pieceSize: 300_000)
      return try parcel.complaint(about: arrival.commit(), in: container)
    }
  }

  private func complaints(_ durability: Container.Durability, commits: Bool) throws -> [String] {
    let recording = try Recording(durability, commits: commits)
    return recording.plans.compactMap { plan in
      do {
        return try recording.complaint(after: plan, durability).map { "\(plan): \($0)" }
      } catch {
        return "\(plan) of \(recording.log.count): \(error)"
      }
    }
  }

  @Test(arguments: [Container.Durability.full, .grouped, .none])
  func afterACrashAllOfAMessageIsThereOrItGoesOn(durability: Container.Durability) throws {
    let complaints = try complaints(durability, commits: true)
    #expect(complaints.isEmpty, "\(complaints.count): \(complaints.prefix(5).joined(separator: "\n"))")
  }

  @Test(arguments: [Container.Durability.full, .grouped])
  func afterACrashWhatWasDiscardedIsGone(durability: Container.Durability) throws {
    let complaints = try complaints(durability, commits: false)
    #expect(complaints.isEmpty, "\(complaints.count): \(complaints.prefix(5).joined(separator: "\n"))")
  }
}
