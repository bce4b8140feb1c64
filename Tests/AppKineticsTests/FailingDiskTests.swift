import AppKineticsTesting
import ContainerStore
import Foundation
import Locks
import Logging
import OpenDynamicsTesting
import SecureFiles
import ServiceValues
import TestSupport
import Testing

@testable import AppKinetics

/// One call to the disk of a sender, or of a receiver, fails in the course of a delivery: what both were told holds, whatever the disk
/// has then.
struct FailingDiskTests {
  enum Course: String, CaseIterable, Sendable {
    case delivered
    /// Its sender takes it back at once.
    case cancelled
    /// Its sender takes it back when some of its contents are there.
    case cancelledInTheMiddle
    /// Its sender takes it back when the receiver has its offer.
    case cancelledWhileItWaits
  }

  enum Side: String, CaseIterable, Sendable {
    case sender, receiver
  }

  @Test(arguments: Course.allCases, Side.allCases)
  func whatWasToldHolds(course: Course, side: Side) async throws {
    let whole = try await FailingDelivery(course, side, failing: nil)
    #expect(whole.complaints == [])
    try #require(whole.callCount > 0)
    for number in TestEffort.oneIn(8, of: Array(0..<whole.callCount)) {
      for loss in [nil, CrashPlan.Loss.nothing, .everythingUnsynchronized] {
        let delivery = try await FailingDelivery(course, side, failing: number, then: loss)
        let crash = loss.map { "a crash that loses \($0)" } ?? "no crash"
        #expect(delivery.complaints == [], "call \(number) of \(whole.callCount), then \(crash)")
        // What the disk has then is not in doubt.
        if !delivery.isSyncLost { break }
      }
    }
  }
}

/// A delivery, after which both processes end, and others go on with what is on the disks.
private struct FailingDelivery {
  private(set) var complaints: [String] = []
  /// How many calls the disk had that may fail.
  private(set) var callCount = 0
  /// The one that failed was a sync.
  private(set) var isSyncLost = false

  private static let senderID = "com.example.sender"
  private static let receiverID = "com.example.receiver"
  private static let message = "it"

  /// What the receiver's handlers got.
  private struct Heard: Sendable {
    let first = Box<String>()
    let again = Box<String>()
  }

  private struct App {
    let io: RecordingIO
    let container: SecureContainer
    let services: AppServices

    init(_ id: String, on io: RecordingIO, isNew: Bool, in world: TestApps) throws {
      let key = try Credential.rawKey(TestApps.containerKey())
      self.io = io
      container = SecureContainer(
        isNew ? try Container.create(io: io, credential: key) : try Container.open(io: io, credential: key))
      var options = AppServices.Options()
      options.broker = world.socketPath
      options.logger = Logger(label: "quiet") { _ in SwiftLogNoOpLogHandler() }
      services = try AppServices(
        Application(id: ApplicationID(id), name: id), container: container, options: options)
    }

    var hasFailed: Bool { (try? container.store.requireNoFailure()) == nil }

    func end() async {
      await services.stop()
      try? await container.close()
    }
  }

  /// `loss`: the computer of that side goes down afterwards.
  init(
    _ course: FailingDiskTests.Course, _ side: FailingDiskTests.Side, failing number: Int?,
    then loss: CrashPlan.Loss? = nil
  ) async throws {
    let world = try await TestApps()
    do {
      try await run(course, side, number, loss, world)
    } catch {
      complaints.append("throws \(error)")
    }
    await world.stop()
  }

  private mutating func run(
    _ course: FailingDiskTests.Course, _ side: FailingDiskTests.Side, _ number: Int?,
    _ loss: CrashPlan.Loss?, _ world: TestApps
  ) async throws {
    let heard = Heard()
    let disks = (sender: RecordingIO(), receiver: RecordingIO())
    let (sender, receiver) = try await start(disks.sender, disks.receiver, isNew: true, heard, world)
    try sender.container.files.write(Data(repeating: 1, count: 3 << 20), toPath: "/file")
    try await send("before", sender).delivered()
    if course == .cancelledWhileItWaits { try await receiver.services.setState(.locked) }

    let disk = side == .sender ? disks.sender : disks.receiver
    let failed = Guarded("")
    disk.setCallFault { name, _, call in
      guard call == number else { return nil }
      failed.withLock { $0 = name }
      return EIO
    }
    let sent = try? await send(Self.message, sender)
    if let sent { try await end(sent, course, sender, receiver) }
    for app in [sender, receiver] { await app.end() }
    callCount = disk.callCount
    disk.setCallFault(nil)
    let status = sent?.status
    isSyncLost = ["fsync", "fdatasync"].contains(failed.withLock { $0 })

    let found =
      loss.map {
        RecordingIO(CrashPlan(operationCount: disk.log.count, loss: $0).replay(disk.log))
      } ?? disk
    let (next, other) = try await start(
      side == .sender ? found : disks.sender, side == .receiver ? found : disks.receiver, isNew: false, heard,
      world)
    try await wait("an empty outbox") { try await next.services.outbox().isEmpty }
    try await send("after", next).delivered()
    try await wait("the last message") { heard.first.values.contains("after") }
    try judge(course, status, heard, other, next)
    for app in [next, other] { await app.end() }
  }

  private func start(
    _ senderDisk: RecordingIO, _ receiverDisk: RecordingIO, isNew: Bool, _ heard: Heard, _ world: TestApps
  ) async throws -> (sender: App, receiver: App) {
    let receiver = try App(Self.receiverID, on: receiverDisk, isNew: isNew, in: world)
    try receiver.services.offer(echo) { request in
      (request.isRedelivered ? heard.again : heard.first).put(request.params?.stringValue ?? "")
      return .noReply
    }
    try await receiver.services.start()
    let sender = try App(Self.senderID, on: senderDisk, isNew: isNew, in: world)
    try await sender.services.start()
    return (sender, receiver)
  }

  private func send(_ name: String, _ sender: App) async throws -> SentRequest {
    try await sender.services.send(
      ServiceRequest(echo, "tell", params: .string(name), attachments: ["/file"]),
      to: ApplicationID(Self.receiverID))
  }

  /// Takes it back, or not, and waits until it has ended, or cannot before a disk is opened anew.
  private func end(
    _ sent: SentRequest, _ course: FailingDiskTests.Course, _ sender: App, _ receiver: App
  ) async throws {
    func isStuck() -> Bool { sender.hasFailed || receiver.hasFailed }
    if course == .cancelledWhileItWaits {
      try await wait("an offer") {
        if isStuck() { return true }
        return try await sender.services.outbox().map(\.state) == [.locked]
      }
    }
    if course == .cancelledInTheMiddle {
      try await wait("some of the contents") {
        isStuck() || sent.progress.completedUnitCount > 0 || !sent.status.isOpen
      }
    }
    let cancel = course == .delivered ? nil : Task { await sent.cancel() }
    try await wait("an end") { isStuck() || !sent.status.isOpen }
    // The app may still hear what was on its way when the disk failed.
    if isStuck() { for _ in 0..<20 where sent.status.isOpen { try await Task.sleep(for: .milliseconds(1)) } }
    cancel?.cancel()
  }

  private func wait(_ what: String, until isThere: () async throws -> Bool) async throws {
    let end = ContinuousClock.now + .seconds(60)
    while try await !isThere() {
      guard ContinuousClock.now < end else { throw TestFailure("there is never \(what)") }
      try await Task.sleep(for: .milliseconds(2))
    }
  }

  private mutating func judge(
    _ course: FailingDiskTests.Course, _ status: SentRequest.Status?, _ heard: Heard, _ receiver: App,
    _ sender: App
  ) throws {
    let count = try receiver.container.inboxMessages().count - 2
    let told = status.map { "\($0)" } ?? "not sent"
    let possible: ClosedRange =
      switch status {
      case .delivered, .endedWithoutReply, .replied: 1...1
      case .refused, .cancelled: 0...0
      // It was taken, and nobody took it back.
      case .waiting, .sent, .lost: course == .delivered ? 1...1 : 0...1
      case nil: 0...1
      }
    if !possible.contains(count) { complaints.append("\(told), and it is there \(count) times") }
    let first = heard.first.values.count { $0 == Self.message }
    if first > 1 { complaints.append("it was handled \(first) times") }
    if count > 0, !(heard.first.values + heard.again.values).contains(Self.message) {
      complaints.append("it was never handled")
    }
    for app in [sender, receiver] {
      // What a crash leaves says that there was one, and no more.
      let findings = try app.container.store.verify().findings.filter {
        $0.severity != .note && ![.superblockSlotTorn, .superblockSlotOutdated].contains($0.kind)
      }
      if !findings.isEmpty { complaints.append("\(told): \(findings)") }
    }
  }
}

extension SentRequest.Status {
  fileprivate var isOpen: Bool { self == .waiting || self == .sent }
}
