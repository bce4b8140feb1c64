import AppKineticsTesting
import ContainerStore
import Foundation
import Locks
import SecureFiles
import ServiceValues
import TestSupport
import Testing

@testable import AppKinetics

/// Two apps send each other messages with files, and the container of either, or of both, is put back to a copy of any time:
/// between messages, in the middle of their contents, and while the other app goes on. Containers are closed at once under their services, too.
@Suite(.timeLimit(.minutes(10)))
struct PutBackTests {
  /// Another seed in each run; more of them with more effort (`TestEffort`).
  @Test(arguments: seeds(4, all: 100))
  func holdsWhileMailGoesOnBothWays(seed: UInt64) async throws {
    try await withTestApps { world in
      let mail = try Mail(world, seed: seed)
      for step in 0..<10 {
        try await mail.step(step)
        if !mail.complaints.isEmpty { break }
      }
      #expect(mail.complaints == [], "seed \(seed)")
      // Messages came in both directions.
      #expect(!mail.sides[0].ever.isEmpty && !mail.sides[1].ever.isEmpty)
    }
  }

  /// Two processes with copies of one container have channels to the same app, and send over them at once: each its own messages, and
  /// both those that waited in the outbox when the copy was made.
  @Test(arguments: [1, 40_000, 1_500_000]) func holdsBesideACopyThatIsInUse(byteCount: Int) async throws {
    try await withTestApps { world in
      let heard = Box<String>()
      let provider = try await world.start("com.example.provider") { services in
        try services.offer(echo) { request in
          if !request.isRedelivered { heard.put(request.params?.stringValue ?? "") }
          return .noReply
        }
      }
      let told = Box<Rollback>()
      func send(_ name: String, _ services: AppServices) async throws -> SentRequest {
        try await services.send(
          ServiceRequest(echo, "tell", params: .string(name), attachments: ["/file"]), to: provider.id)
      }
      let maker = try await world.app("com.example.consumer")
      try maker.container.files.write(Data(repeating: 7, count: byteCount), toPath: "/file")
      try await maker.services.start()
      try await send("before", maker.services).delivered()
      try await provider.services.setState(.locked)
      for i in 0..<3 { _ = try await send("waiting \(i)", maker.services) }
      try await world.end(maker)
      let copy = world.directory.appendingPathComponent("copy")
      try FileManager.default.copyItem(
        at: world.directory.appendingPathComponent("com.example.consumer"), to: copy)
      try await provider.services.setState(.running)

      let original = try await world.start("com.example.consumer")
      try await send("original", original.services).delivered()
      let container = try await SecureContainer.open(
        at: copy, rawKey: TestApps.containerKey())
      var options = AppServices.Options()
      options.broker = world.socketPath
      let second = try await AppServices(
        original.services.application, container: container, options: options)
      let rollbacks = second.rollbacks
      Task { for await rollback in rollbacks { told.put(rollback) } }
      // It takes the place of the original at the broker; the channel of the original stays.
      try await second.start()
      var sent: [SentRequest] = []
      for i in 0..<5 {
        sent.append(try await send("original \(i)", original.services))
        sent.append(try await send("copy \(i)", second))
      }
      for sent in sent { try await sent.delivered() }
      let names =
        ["before", "original"] + (0..<3).map { "waiting \($0)" }
        + (0..<5).flatMap { ["original \($0)", "copy \($0)"] }
      for _ in names { _ = await heard.next() }
      #expect(heard.values.sorted() == names.sorted())
      #expect(await told.next() == Rollback(side: .thisApp, application: provider.id, effect: .repeats))
      #expect(try provider.container.inboxMessages().count == names.count)
      #expect(try provider.container.store.verify().findings.isEmpty)
      await second.stop()
      try await container.close()
    }
  }
}

/// One of the two apps, whose process and container come and go.
private final class Side {
  let id: ApplicationID
  var app: TestApp?
  /// Copies of its container, oldest first.
  var copies: [URL] = []
  /// The names of all messages that its container ever had.
  var ever: Set<String> = []
  /// The names of messages that its container has to have when the outbox of the other side is empty.
  var due: Set<String> = []
  /// What its handler was told: that the message may have come before.
  let repeated = Guarded<Set<String>>([])
  /// What it was told of its own messages: that they were delivered.
  let delivered = Guarded<Set<String>>([])
  /// Files whose first bytes have come.
  let begun = Guarded(0)

  init(_ id: String) throws { self.id = try ApplicationID(id) }
}

private final class Mail {
  let world: TestApps
  let sides: [Side]
  private(set) var complaints: [String] = []
  private var random: SplitMix64
  private var count = 0
  private var copyCount = 0
  /// So many copies are kept of each container.
  private static let copyCountMax = 4

  init(_ world: TestApps, seed: UInt64) throws {
    self.world = world
    random = SplitMix64(seed: seed)
    sides = try [Side("com.example.one"), Side("com.example.two")]
  }

  // MARK: Apps

  private func container(_ side: Side) -> URL { world.directory.appendingPathComponent(side.id.text) }

  private final class Provider: ServiceProvider {
    let side: (repeated: Guarded<Set<String>>, begun: Guarded<Int>)
    init(_ side: Side) { self.side = (side.repeated, side.begun) }
    func willReceive(
      attachment: String, byteCount: UInt64, for request: RequestID, from sender: ApplicationID
    ) {
      side.begun.withLock { $0 += 1 }
    }
    func didReceive(_ request: IncomingRequest) {
      if request.mayBeRepeated {
        side.repeated.withLock { _ = $0.insert(request.params?.stringValue ?? "") }
      }
    }
  }

  private func start(_ side: Side, sendingTo other: Side) async throws {
    let app = try await world.app(side.id.text)
    side.app = app
    try app.services.offer([echo], provider: Provider(side))
    let delivered = side.delivered
    app.services.onOutboxEnd { message, error in
      if error == nil { delivered.withLock { _ = $0.insert(message.params?.stringValue ?? "") } }
    }
    // What waits in the outbox comes, whatever was put back before.
    for message in try await app.services.outbox() { other.due.insert(message.params?.stringValue ?? "") }
    try await app.services.start()
  }

  /// `sealed`: the container is closed at once under its services, which go on for a moment.
  private func end(_ side: Side, sealed: Bool = false) async throws {
    guard let app = side.app else { return }
    if sealed {
      try app.container.close(.now, because: "a test")
      try await Task.sleep(for: .milliseconds(random.below(30)))
    }
    await app.services.stop()
    if !sealed { side.ever.formUnion(try received(in: app.container).keys) }
    try await world.end(app)
    side.app = nil
    guard sealed else { return }
    let again = try await SecureContainer.open(
      at: container(side), rawKey: TestApps.containerKey())
    side.ever.formUnion(try received(in: again).keys)
    try await again.close()
  }

  // MARK: Messages

  private static let blockByteCount = 4096
  private static let sizes = [0, 1, 16_384, 20_000, 300_000, 1_500_000]

  private func contents(_ name: String, _ file: Int, _ size: Int) -> Data {
    var words = SplitMix64(seed: name.utf8.reduce(UInt64(file)) { $0 &* 31 &+ UInt64($1) })
    var contents = Data(capacity: size + Self.blockByteCount)
    let block = (0..<Self.blockByteCount / 8).flatMap { _ in withUnsafeBytes(of: words.next(), Array.init) }
    // No two blocks are alike.
    while contents.count < size {
      withUnsafeBytes(of: contents.count) { contents.append(contentsOf: $0) }
      contents.append(contentsOf: block)
    }
    return contents.prefix(size)
  }

  private func send(from side: Side, to other: Side) async throws {
    guard let app = side.app else { return }
    count += 1
    let files = (0..<(1 + random.below(3))).map { file in (file, Self.sizes[random.below(Self.sizes.count)]) }
    let name = "m\(count)" + files.map { " \($0.1)" }.joined()
    let directory = "/out/\(name)"
    try app.container.files.createDirectory(atPath: directory, withIntermediateDirectories: true)
    for (file, size) in files {
      try app.container.files.write(contents(name, file, size), toPath: "\(directory)/\(file)")
    }
    _ = try await app.services.send(
      ServiceRequest(echo, "tell", params: .string(name), attachments: [directory]), to: other.id)
    other.due.insert(name)
    // The outbox has its own hold on the files.
    try app.container.files.removeItem(atPath: directory)
  }

  /// The names of the messages in its inbox, and how often each is there; complains about what is not whole.
  private func received(in container: SecureContainer) throws -> [String: Int] {
    let files = container.files
    var counts: [String: Int] = [:]
    for message in try container.inboxMessages() {
      let directory = message.directory + "/out"
      guard let name = try files.contentsOfDirectory(atPath: directory).first else { continue }
      counts[name, default: 0] += 1
      let sizes = name.split(separator: " ").dropFirst().map { Int($0)! }
      for (file, size) in sizes.enumerated()
      where files.contents(atPath: "\(directory)/\(name)/\(file)") != contents(name, file, size) {
        complaints.append("\(name)/\(file) is not what was sent")
      }
    }
    return counts
  }

  // MARK: Steps

  func step(_ number: Int) async throws {
    try changeContainers(sides)
    try await startBoth()
    for _ in 0..<(1 + random.below(4)) {
      let from = random.below(2)
      try await send(from: sides[from], to: sides[1 - from])
    }
    if !random.oneIn(3) { try await interrupt() }
    try await drain(number)
    for side in sides { try await end(side) }
  }

  private func startBoth() async throws {
    for (side, other) in [(sides[0], sides[1]), (sides[1], sides[0])] where side.app == nil {
      try await start(side, sendingTo: other)
    }
  }

  /// Ends one app or both when so many files have begun, and goes on with the container of then, or another one.
  private func interrupt() async throws {
    let before = begunCount
    let wanted = random.below(4)
    while begunCount < before + wanted, try await !isQuiet() { await Task.yield() }
    let ending = random.oneIn(2) ? sides : [sides[random.below(2)]]
    for side in ending { try await end(side, sealed: random.oneIn(2)) }
    try changeContainers(ending)
    try await startBoth()
    for _ in 0..<random.below(3) {
      let from = random.below(2)
      try await send(from: sides[from], to: sides[1 - from])
    }
  }

  private var begunCount: Int { sides.reduce(0) { $0 + $1.begun.withLock { $0 } } }

  /// Copies the containers of these sides, or puts them back to some copy.
  private func changeContainers(_ ended: [Side]) throws {
    for side in ended {
      switch random.below(3) {
      case 0:
        guard FileManager.default.fileExists(atPath: container(side).path) else { continue }
        let copy = world.directory.appendingPathComponent("copy \(copyCount) of \(side.id)")
        copyCount += 1
        try FileManager.default.copyItem(at: container(side), to: copy)
        side.copies.append(copy)
        if side.copies.count > Self.copyCountMax {
          try FileManager.default.removeItem(at: side.copies.remove(at: random.below(Self.copyCountMax)))
        }
      case 1:
        guard !side.copies.isEmpty else { continue }
        try FileManager.default.removeItem(at: container(side))
        try FileManager.default.copyItem(
          at: side.copies[random.below(side.copies.count)], to: container(side))
        // What had arrived here is gone, and what had to be sent from here; what is in its outbox is due again when it starts.
        for side in sides { side.due = [] }
      default: break
      }
    }
  }

  private func isQuiet() async throws -> Bool {
    for side in sides {
      guard let app = side.app else { continue }
      guard try await app.services.outbox().isEmpty,
        try app.container.store.messageQueue().unhandled.isEmpty
      else { return false }
    }
    return true
  }

  private func drain(_ number: Int) async throws {
    while try await !isQuiet() { try await Task.sleep(for: .milliseconds(5)) }
    for (side, other) in [(sides[0], sides[1]), (sides[1], sides[0])] {
      guard let app = side.app else { continue }
      let has = try received(in: app.container)
      side.ever.formUnion(has.keys)
      let lost = side.due.subtracting(has.keys)
      if !lost.isEmpty { complaints.append("step \(number): \(side.id) does not have \(lost.sorted())") }
      let repeated = side.repeated.withLock { $0 }
      for (name, count) in has where count > 1 && !repeated.contains(name) {
        complaints.append("step \(number): \(name) came \(count) times to \(side.id) without a mark")
      }
      let never = other.delivered.withLock { $0 }.subtracting(side.ever)
      if !never.isEmpty {
        complaints.append("step \(number): \(never.sorted()) never came, and \(other.id) was told so")
      }
      let findings = try app.container.store.verify().findings
      if !findings.isEmpty { complaints.append("step \(number): \(side.id) has \(findings)") }
    }
  }
}
