import ContainerStore
import OpenDynamicsTesting
import TestSupport
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
      let byteCount = Int(parcel.message.byteCount)
      while arrival.received < parcel.message.byteCount {
        let end = min(Int(arrival.received) + 550_000, byteCount)
        try parcel.append(to: arrival, until: end, pieceSize: 1 << 20)
        received.append((fixture.io.log.count, arrival.received))
      }
      // Else discarding might take back only what no disk has seen.
      if !commits { try fixture.container.synchronize() }
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
        if durability == .none { try fixture.container.synchronize() }
        discard = begun..<fixture.io.log.count
      }
      try fixture.container.close()
      log = fixture.io.log
    }

    var plans: [CrashPlan] {
      var random = SplitMix64(seed: SplitMix64.testSeed)
      var plans: [CrashPlan] = []
      for time in creation...log.count {
        var losses = CrashPlan.Loss.certain
        for _ in 0..<TestEffort.count(1, long: 1, all: 8) { losses.append(.some(seed: random.next())) }
        if case .write = log[time - 1] { losses.append(.tornLast(seed: random.next())) }
        plans += losses.map { CrashPlan(operationCount: time, loss: $0) }
      }
      return plans
    }

    /// What is wrong with what a crash left.
    func complaint(after plan: CrashPlan, _ durability: Container.Durability) throws -> String? {
      let kept = received.last { $0.time <= plan.operationCount }?.byteCount ?? 0
      return try complaint(
        about: plan.replay(log), at: plan.operationCount, durability, kept: plan.loss == .nothing ? kept : 0)
    }

    /// The same for a disk with which somebody went on that crashed at `time`: so many bytes must be `kept`, an opening has `shown`
    /// whether the message is there, and so many bytes may be staged in spite of an earlier discarding.
    func complaint(
      about found: DiskImage, at time: Int, _ durability: Container.Durability, kept: UInt64,
      shown: Bool? = nil, stagedAnew: UInt64 = 0
    ) throws -> String? {
      let io = RecordingIO(found)
      let container = try Container.open(
        io: io, credential: testCredential(), options: testOptions(durability))
      let findings = container.findings + (try container.verify().findings)
      if let finding = findings.first(where: { !CrashHarness.isTrace($0) }) { return "reports \(finding)" }
      let isThere = try parcel.wasDelivered(to: container)
      let isCommitted = commit.map { durability != .none && time >= $0.upperBound } ?? false
      if isCommitted || shown == true, !isThere { return "what was committed is lost" }
      if shown == false, isThere { return "is there after an opening that did not show it" }
      if isThere {
        guard let commit, time > commit.lowerBound else { return "is there before its commit" }
        if let complaint = try allIsThere(in: container, time) { return complaint }
      } else {
        if let complaint = try goesOn(in: container, time, kept: kept, stagedAnew) { return complaint }
      }
      guard try container.staged() == [] else { return "staging is left" }
      try container.close()
      let report = try Container.verify(io: io, credential: testCredential(), options: testOptions())
      return report.findings.first { !CrashHarness.isTrace($0) }.map { "verify reports \($0)" }
    }

    private func allIsThere(in container: Container, _ time: Int) throws -> String? {
      guard try container.staged() == [] else { return "staging is left after the commit" }
      guard let queued = try container.messageQueue().unhandled.first else {
        // It was ended later.
        return time > commit!.upperBound ? nil : "the ledger has it and the queue has not"
      }
      return try parcel.complaint(about: queued, in: container)
    }

    private func goesOn(
      in container: Container, _ time: Int, kept: UInt64, _ stagedAnew: UInt64
    ) throws -> String? {
      guard try container.attributes(at: "/Inbox") == nil, try container.messageQueue().unhandled.isEmpty
      else {
        return "something of it is visible"
      }
      let arrival = try container.beginArrival(parcel.message)
      if discard == nil, arrival.received < kept {
        return "\(arrival.received) of \(kept) bytes are kept after the death of the process"
      }
      if let discard, time >= discard.upperBound, arrival.received > stagedAnew {
        return "what was discarded is back"
      }
      try parcel.addFiles(to: arrival)
      try parcel.append(to: arrival, pieceSize: 300_000)
      return try parcel.complaint(about: arrival.commit(), in: container)
    }

    // MARK: Two crashes

    /// Crashes, opens the container, goes on with the arrival for a while, and crashes again at some operations of that.
    func crashTwice(_ durability: Container.Durability, limit: Int) -> (complaints: [String], count: Int) {
      var random = SplitMix64(seed: SplitMix64.testSeed &+ 2)
      var complaints: [String] = []
      var count = 0
      for first in plans.shuffled(using: &random) {
        if count >= limit { break }
        do {
          let second = try SecondLife(after: first, self, durability)
          let begins = [0, 1, second.opened].filter { $0 <= second.log.count }
          let others = Array(0...second.log.count).shuffled(using: &random).prefix(
            TestEffort.count(3, long: 3, all: .max))
          for again in Set(begins + others).sorted() {
            let losses =
              CrashPlan.Loss.certain + [.some(seed: random.next()), .tornLast(seed: random.next())]
            let plan = CrashPlan(
              operationCount: second.before.count + again, loss: losses.randomElement(using: &random)!)
            count += 1
            if let complaint = try complaint(after: plan, second, durability) {
              complaints.append("\(first), then \(plan) (\(again) of \(second.log.count)): \(complaint)")
            }
          }
        } catch {
          complaints.append("\(first): \(error)")
        }
      }
      return (complaints, count)
    }

    private func complaint(
      after plan: CrashPlan, _ second: SecondLife, _ durability: Container.Durability
    ) throws -> String? {
      let time = plan.operationCount - second.before.count
      // After the death of the process, nothing of either life is lost.
      let isKept = plan.loss == .nothing && second.first.loss == .nothing
      let before = received.last { $0.time <= second.first.operationCount }?.byteCount ?? 0
      let later = second.received.last { $0.time <= time }?.byteCount ?? 0
      // What the opening has shown stays.
      return try complaint(
        about: plan.replay(second.before + second.log, from: second.start), at: second.first.operationCount,
        durability, kept: isKept ? max(before, later) : 0,
        shown: time >= second.opened ? second.showsIt : nil, stagedAnew: second.received.last?.byteCount ?? 0)
    }

    /// What was done with the disk that a crash left.
    private struct SecondLife {
      var first: CrashPlan
      /// The operations that may still be lost: those of the first life, when only its process died.
      var before: [RecordingIO.Operation]
      var start: DiskImage
      var log: [RecordingIO.Operation]
      /// When the container was open.
      var opened: Int
      /// Whether the message was there then.
      var showsIt: Bool
      var received: [(time: Int, byteCount: UInt64)] = []

      init(after first: CrashPlan, _ recording: Recording, _ durability: Container.Durability) throws {
        self.first = first
        let found = first.replay(recording.log)
        let processDied = first.loss == .nothing
        before = processDied ? Array(recording.log.prefix(first.operationCount)) : []
        start = processDied ? DiskImage() : found
        let io = RecordingIO(found)
        let container = try Container.open(
          io: io, credential: testCredential(), options: testOptions(durability))
        opened = io.log.count
        showsIt = try recording.parcel.wasDelivered(to: container)
        if !showsIt {
          let arrival = try container.beginArrival(recording.parcel.message)
          try recording.parcel.addFiles(to: arrival)
          received.append((io.log.count, arrival.received))
          let end = min(Int(arrival.received) + 400_000, recording.parcel.contents.count)
          try recording.parcel.append(to: arrival, until: end)
          arrival.suspend()
          received.append((io.log.count, arrival.received))
        }
        // Before the container goes: as if the process died.
        log = io.log
      }
    }
  }

  private func complaints(_ durability: Container.Durability, commits: Bool) throws -> [String] {
    let recording = try Recording(durability, commits: commits)
    return TestEffort.oneIn(8, of: recording.plans).compactMap { plan in
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

  /// 6 disks for each policy; with more effort 30 or 2000.
  @Test(arguments: [Container.Durability.full, .grouped, .none], [true, false])
  func afterACrashWhileItGoesOnItStillDoes(durability: Container.Durability, commits: Bool) throws {
    let recording = try Recording(durability, commits: commits)
    let (complaints, count) = recording.crashTwice(
      durability, limit: TestEffort.count(6, long: 30, all: 2000))
    #expect(
      complaints.isEmpty,
      """
      OPENDYNAMICS_TEST_SEED=\(SplitMix64.testSeed), \(complaints.count) of \(count): \
      \(complaints.prefix(5).joined(separator: "\n"))
      """)
  }
}
