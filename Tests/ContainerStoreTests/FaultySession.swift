import ContainerStore
import OpenDynamicsTesting
import SodiumPrimitives

/// What a session does while calls fail.
enum FaultyLife: String, CaseIterable, Sendable {
  case changes, checkpoints, openFile, compaction, outbox, arrival
}

/// A session with a container, whose every call may fail, beside the models of what it may have come to.
final class FaultySession {
  /// When a change that succeeded is durable.
  enum Acknowledgement {
    /// With `full` when it returns.
    case byPolicy
    /// When it returns, with all before it.
    case atOnce
    /// With the next sync.
    case later
  }

  private let durability: Container.Durability
  private let options: Container.Options
  private let life: FaultyLife
  private let start: DiskImage
  private let io: RecordingIO
  private var container: Container?
  /// What the disk may hold: all since the last state that was durable.
  private var candidates: [Tree]
  /// Of messages in the outbox: none may be given again.
  private var numbers: Set<UInt64> = []
  /// Those that may have arrived.
  private let parcels: [Parcel]
  private(set) var complaints: [String] = []
  /// What compactions moved.
  private(set) var movedByteCount: UInt64 = 0

  var log: [RecordingIO.Operation] { io.log }

  init(_ start: DiskImage, _ tree: Tree, _ life: FaultyLife, _ durability: Container.Durability) {
    self.durability = durability
    self.life = life
    self.start = start
    io = RecordingIO(start)
    candidates = [tree]
    parcels =
      life == .arrival
      ? [Parcel(sizes: [700, 0, 40_000, 16_384, 9]), Parcel(sizes: [20_000], number: 2)] : []
    var options = testOptions(durability)
    if life == .checkpoints { options.checkpointByteCounts = 1...1 }
    self.options = options
  }

  /// Runs everything and says how many calls that took.
  func run(_ fault: RecordingIO.CallFault?) -> Int {
    io.setCallFault(fault)
    calling("open") {
      container = try Container.open(io: io, credential: testCredential(), options: options)
    }
    switch life {
    case .changes, .checkpoints: changes()
    case .openFile: openFile()
    case .compaction: compaction()
    case .outbox: outbox()
    case .arrival: arrival()
    }
    let callCount = io.callCount
    checkReading()
    if let fault {
      io.setCallFault { name, path, number in fault(name, path, number + callCount) }
    }
    if calling("close", { try container?.close() }), durability != .none { keepLast() }
    let total = callCount + io.callCount
    checkDisk()
    return total
  }

  // MARK: Lives

  private func changes() {
    write(30_000, seed: 20, to: "/new")
    write(500, seed: 21, to: "/old")
    step("move") {
      try $0.move("/new", to: "/newer")
    } model: {
      if let contents = $0.removeValue(forKey: "/new") { $0["/newer"] = contents }
    }
    call("list") { _ = try $0.tree() }
    step("copy") {
      try $0.copy("/newer", to: "/copy")
    } model: {
      if let contents = $0["/newer"] { $0["/copy"] = contents }
    }
    call("addKey") { try $0.addKey(testCredential(8)) }
    synchronize()
    remove("/folder")
    call("removeKey") { try $0.removeKey(testCredential(8)) }
    step("make directory") {
      try $0.createDirectory("/made")
    } model: {
      $0.updateValue(nil, forKey: "/made")
    }
    call("verify") { _ = try $0.verify() }
  }

  private func openFile() {
    var file: OpenFile?
    call("open a file") { file = try $0.openFile("/old", .readWrite) }
    guard let file else { return }
    func put(_ name: String, _ bytes: [UInt8], at offset: Int?) {
      // Kept in memory until it is written back.
      step(name, .later) { _ in
        try bytes.withUnsafeBytes { bytes in
          if let offset { try file.write(bytes, at: UInt64(offset)) } else { try file.append(bytes) }
        }
      } model: { tree in
        guard var contents = tree["/old"] ?? nil else { return }
        let offset = offset ?? contents.count
        contents += [UInt8](repeating: 0, count: max(0, offset + bytes.count - contents.count))
        contents.replaceSubrange(offset..<(offset + bytes.count), with: bytes)
        tree["/old"] = contents
      }
    }
    put("write through a file", testBytes(20_000, seed: 30), at: 3000)
    if call("synchronize a file", { _ in try file.synchronize() }) { keepLast() }
    put("write behind its end", testBytes(300, seed: 31), at: 50_000)
    // Writes back what is in memory.
    call("list") { _ = try $0.tree() }
    write(500, seed: 32, to: "/beside")
    step("truncate a file", .later) { _ in
      try file.truncate(to: 17_000)
    } model: {
      if let contents = $0["/old"] ?? nil, contents.count > 17_000 {
        $0["/old"] = Array(contents.prefix(17_000))
      }
    }
    put("append to a file", testBytes(700, seed: 33), at: nil)
    if call("close a file", { _ in try file.close() }), durability == .full { keepLast() }
    call("read a file") { container in
      let again = try container.openFile("/old", .read)
      var bytes = [UInt8](repeating: 0, count: 60_000)
      let count = try bytes.withUnsafeMutableBytes { try again.read(at: 0, into: $0) }
      try again.close()
      let isKnown = candidates.contains { $0["/old"] == Array(bytes.prefix(count)) }
      if !isKnown { complaints.append("an open file shows what never was") }
    }
  }

  private func compaction() {
    remove("/1")
    call("compact") { movedByteCount += try $0.compact().copiedByteCount }
    write(30_000, seed: 40, to: "/3")
    synchronize()
    remove("/5")
    call("compact again") { movedByteCount += try $0.compact().copiedByteCount }
    write(100, seed: 41, to: "/after")
  }

  private func outbox() {
    enqueue(["/old", "/folder/large"], id: 1)
    write(500, seed: 50, to: "/old")
    var file: OpenFile?
    call("open a file") { file = try $0.openFile("/folder/large", .readWrite) }
    if let file {
      step("append to a file", .later) { _ in
        _ = try testBytes(700, seed: 51).withUnsafeBytes { try file.append($0) }
      } model: {
        if let contents = $0["/folder/large"] ?? nil {
          $0["/folder/large"] = contents + testBytes(700, seed: 51)
        }
      }
    }
    // With what was written through the file.
    enqueue(["/folder/large", "/old"], id: 2)
    if let file { call("close a file") { _ in try file.close() } }
    step("mark as offered", .atOnce) {
      try $0.markOffered(try self.number(of: 1, in: $0))
    } model: {
      if let bytes = $0.removeValue(forKey: messageName(Identifier(repeating: 1), mayBeOffered: false)) {
        $0[messageName(Identifier(repeating: 1), mayBeOffered: true)] = bytes
      }
    }
    remove("/folder")
    call("read the outbox") { container in
      let pinned = try container.readOutbox(try number(of: 1, in: container), from: 100)
      let expected = (testBytes(6000, seed: 1) + testBytes(40_000, seed: 2)).dropFirst(100)
      if pinned != Array(expected) { complaints.append("a pinned version is another one") }
    }
    step("settle") {
      try $0.settleOutbox(try self.number(of: 1, in: $0))
    } model: {
      $0[messageName(Identifier(repeating: 1), mayBeOffered: false)] = nil
      $0[messageName(Identifier(repeating: 1), mayBeOffered: true)] = nil
    }
    call("compact") { try $0.compact() }
    synchronize()
    enqueue(["/old"], id: 3)
  }

  private func number(of id: UInt8, in container: Container) throws -> UInt64 {
    guard let entry = try container.outboxEntries().first(where: { $0.id.bytes[0] == id }) else {
      throw ContainerError(.noSuchFile, detail: "an earlier call has failed")
    }
    return entry.number
  }

  private func enqueue(_ paths: [String], id: UInt8) {
    let message = OutgoingMessage(
      id: Identifier(repeating: id), receiver: "com.example.receiver", message: [id, 1],
      attachments: paths)
    step("enqueue \(id)", .atOnce) {
      self.numbers.insert(try $0.enqueue(message).number)
    } model: { tree in
      let contents = paths.compactMap { tree[$0] ?? nil }
      if contents.count == paths.count {
        tree[messageName(Identifier(repeating: id), mayBeOffered: false)] = [id, 1] + contents.joined()
      }
    }
  }

  private func arrival() {
    let parcel = parcels[0]
    var arrival: Arrival?
    func begin(_ parcel: Parcel, until end: Int?) {
      arrival = nil
      call("begin an arrival") { arrival = try $0.beginArrival(parcel.message) }
      guard let arrival else { return }
      if call("add files", { _ in try parcel.addFiles(to: arrival, pageSize: 2) }) {
        call("append") { _ in try parcel.append(to: arrival, until: end, pieceSize: 9000) }
      }
    }
    begin(parcel, until: 30_000)
    arrival?.suspend()
    write(500, seed: 60, to: "/old")
    begin(parcel, until: nil)
    if let arrival {
      let directory = arrival.directory
      step("commit an arrival", .atOnce) { _ in
        _ = try arrival.commit()
      } model: {
        parcel.put(in: &$0, directory)
      }
      arrival.suspend()
      step("end a queued message", .later) { container in
        for queued in try container.messageQueue().unhandled { try container.endQueued(queued.arrival) }
      } model: {
        $0[queueName(parcel.message.id, in: directory)] = nil
      }
    }
    begin(parcels[1], until: 17_000)
    if let arrival { call("discard an arrival") { _ in try arrival.discard() } }
    begin(parcels[1], until: 18_000)
    arrival?.suspend()
    call("discard what is staged") { try $0.discardArrivals(olderThan: nil) }
    // As the policy says, and all before it.
    write(500, seed: 61, to: "/late")
    call("list") { _ = try $0.tree() }
  }

  // MARK: Steps

  private func write(_ count: Int, seed: UInt64, to path: String) {
    let bytes = testBytes(count, seed: seed)
    step("write \(path)") {
      try $0.write(bytes, to: path)
    } model: {
      $0[path] = bytes
    }
  }

  private func remove(_ top: String) {
    step("remove \(top)") {
      try $0.remove(top)
    } model: { tree in
      for path in tree.keys where (path + "/").hasPrefix(top + "/") { tree.removeValue(forKey: path) }
    }
  }

  /// What fails must be explained by an error of ours.
  @discardableResult
  private func calling(_ name: String, _ body: () throws -> Void) -> Bool {
    do {
      try body()
      return true
    } catch let error as ContainerError {
      // These are about what is stored, and that is whole.
      if [.catalogDamaged, .tableDamaged, .fileDamaged].contains(error.code) {
        complaints.append("\(name) throws \(error)")
      }
      return false
    } catch {
      complaints.append("\(name) throws \(type(of: error)): \(error)")
      return false
    }
  }

  @discardableResult
  private func call(_ name: String, _ body: (Container) throws -> Void) -> Bool {
    guard let container else { return false }
    return calling(name) { try body(container) }
  }

  private func step(
    _ name: String, _ acknowledgement: Acknowledgement = .byPolicy, _ body: (Container) throws -> Void,
    model: (inout Tree) -> Void
  ) {
    guard let container else { return }
    let succeeded = calling(name) { try body(container) }
    let after = candidates.map { tree in
      var tree = tree
      model(&tree)
      return tree
    }
    let isDurable =
      switch acknowledgement {
      case .byPolicy: durability == .full
      case .atOnce: durability != .none
      case .later: false
      }
    if succeeded, isDurable {
      candidates = after
      if acknowledgement == .atOnce { keepLast() }
    } else {
      candidates += after.filter { !candidates.contains($0) }
    }
  }

  private func synchronize() {
    guard let container else { return }
    if calling("synchronize", { try container.synchronize() }) { keepLast() }
  }

  /// After a success of all since the last sync the newest state is durable; else it is not known which one is newest.
  private func keepLast() {
    guard let container, let tree = try? shown(in: container) else { return }
    if candidates.contains(tree) { candidates = [tree] }
  }

  // MARK: Checks

  private func shown(in container: Container) throws -> Tree {
    var tree = try container.treeWithoutStaging()
    if life == .outbox || life == .arrival { tree.merge(try container.messages()) { $1 } }
    for parcel in parcels where try parcel.wasDelivered(to: container) { tree[parcel.ledgerName] = [] }
    return tree
  }

  private func describe(_ tree: Tree) -> [String: Int] { tree.mapValues { $0?.count ?? -1 } }

  /// With the faults gone, and in the same process.
  private func checkReading() {
    io.setCallFault(nil)
    guard let container else { return }
    do {
      let tree = try shown(in: container)
      if !candidates.contains(tree) { complaints.append("the process shows \(describe(tree))") }
    } catch {
      complaints.append("cannot be read any more: \(error)")
    }
  }

  /// With the faults gone, by another process, and after a crash.
  private func checkDisk() {
    io.setCallFault(nil)
    let log = io.log
    container = nil
    for (name, disk) in [("reopened", io), ("after a crash", nil)] {
      do {
        let plan = CrashPlan(operationCount: log.count, loss: .everythingUnsynchronized)
        let disk = disk ?? RecordingIO(plan.replay(log, from: start))
        let container = try Container.open(io: disk, credential: testCredential(), options: testOptions())
        let tree = try shown(in: container)
        if !candidates.contains(tree) {
          complaints.append("\(name): shows \(describe(tree)), expected one of \(candidates.count) states")
        }
        let findings = container.findings + (try container.verify().findings)
        if let finding = findings.first(where: { !CrashHarness.isTrace($0) }) {
          complaints.append("\(name): \(finding)")
        }
        try goOn(with: container, name)
        try container.close()
        let report = try Container.verify(io: disk, credential: testCredential(), options: testOptions())
        if let finding = report.findings.first { complaints.append("\(name), after going on: \(finding)") }
      } catch {
        complaints.append("\(name): \(error)")
      }
    }
  }

  private func goOn(with container: Container, _ name: String) throws {
    try container.write([1], to: "/afterwards")
    if life == .outbox {
      let message = OutgoingMessage(
        id: Identifier(repeating: 99), receiver: "com.example.receiver", message: [], attachments: [])
      let number = try container.enqueue(message).number
      if numbers.contains(number) { complaints.append("\(name): gives the number \(number) again") }
    }
    // What is staged is good for the rest of it.
    for parcel in parcels where try !parcel.wasDelivered(to: container) {
      let queued = try parcel.arrive(in: container)
      if let complaint = try parcel.complaint(about: queued, in: container) {
        complaints.append("\(name), going on with an arrival: \(complaint)")
      }
    }
    if try container.staged() != [] { complaints.append("\(name): staging is left") }
  }
}

extension Parcel {
  var ledgerName: String { "delivered \(message.number)" }

  /// Everything that its commit makes visible.
  func put(in tree: inout Tree, _ directory: String) {
    for file in files {
      let path = directory + file.path
      tree[path] = file.contents
      var parent = path
      while let slash = parent.lastIndex(of: "/"), slash > parent.startIndex {
        parent = String(parent[..<slash])
        tree.updateValue(nil, forKey: parent)
      }
    }
    tree[queueName(message.id, in: directory)] = message.message
    tree[ledgerName] = []
  }
}
