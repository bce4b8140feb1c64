import ContainerStore
import OpenDynamicsTesting
import SodiumPrimitives
import TestSupport
import Testing

extension Container {
  /// Everything that the model knows of.
  fileprivate func model(parcels: [Parcel]) throws -> TreeModel {
    var model = TreeModel()
    for file in try list("/", recursively: true) {
      let path = "/" + file.path
      // What is on its way is nobody's yet.
      if path.hasPrefix("/.opendynamics") { continue }
      let attributes = file.attributes
      let contents = attributes.kind == .file ? try contents(at: path) : nil
      let target = attributes.kind == .symbolicLink ? try destinationOfSymbolicLink(path) : nil
      model.put(
        TreeModel.Node(
          contents: contents, target: target, permissions: attributes.permissions,
          created: attributes.created, attributes: try extendedAttributes(at: path),
          group: attributes.linkCount > 1 ? attributes.id : nil),
        at: path)
    }
    model.delivery = try deliveryModel(parcels)
    return model
  }
}

/// A container, its model, and all that a crash may lead back to.
final class Side {
  static let constantKey: UInt8 = 7
  let durability: Container.Durability
  private var start = DiskImage()
  private var io: RecordingIO
  /// When the container was there, on this disk.
  private var creation: Int
  private(set) var container: Container
  private(set) var history: History<TreeModel>
  private var keys: History<Set<UInt8>>
  var model = TreeModel()
  /// All that were ever on their way here, by their numbers, which begin with 1.
  private var parcels: [Parcel] = []
  /// The one that is arriving, and how much of it was sent.
  private(set) var arriving: (arrival: Arrival, parcel: Parcel, position: Int)?
  /// So much of each parcel must be kept, as long as there was no crash.
  private var kept: [UInt64: UInt64] = [:]

  init(_ durability: Container.Durability) throws {
    self.durability = durability
    let io = RecordingIO()
    self.io = io
    container = try Container.create(
      io: io, credential: testCredential(Self.constantKey), options: testOptions(durability))
    creation = io.log.count
    history = History(TreeModel(), durable: io.log.count)
    keys = History([Self.constantKey], durable: io.log.count)
  }

  struct Disagreement: Error, CustomStringConvertible {
    var description: String
  }

  /// One operation on model and container. They must agree whether it can be done.
  func change(
    isDurable: Bool? = nil, _ expected: (inout TreeModel) -> Bool, _ operation: (Container) throws -> Void
  ) throws {
    let begun = io.log.count
    var after = model
    let succeeds = expected(&after)
    do {
      try operation(container)
      if !succeeds { throw Disagreement(description: "it succeeded") }
    } catch let error as ContainerError {
      if succeeds || [.catalogDamaged, .tableDamaged].contains(error.code) { throw error }
      return
    }
    note(after, begun: begun, isDurable: isDurable)
  }

  /// `isDurable`: else as the policy says.
  private func note(_ after: TreeModel, begun: Int, isDurable: Bool? = nil) {
    model = after
    history.append(after, begun: begun)
    if isDurable ?? (durability == .full) { history.acknowledge(at: io.log.count) }
  }

  func send(_ path: String, to other: Side) throws {
    let begun = other.io.log.count
    // The messages of one in those of the other, and so on, would soon fill the memory.
    if model.isRoot(path) { return }
    guard model.maySend(path) else {
      #expect(throws: ContainerError.self) {
        try container.send([path], to: other.container, sender: "com.example.app")
      }
      return
    }
    let receipt = try container.send([path], to: other.container, sender: "com.example.app")
    var after = other.model
    after.receive(path, from: model, into: receipt.directory)
    other.note(after, begun: begun)
    if other.durability != .none { other.history.acknowledge(at: other.io.log.count) }
  }

  func synchronize() throws {
    try container.synchronize()
    history.acknowledge(at: io.log.count)
  }

  func toggleKey(_ key: UInt8) throws {
    let begun = io.log.count
    if keys.last.contains(key) {
      try container.removeKey(testCredential(key))
      keys.append(keys.last.subtracting([key]), begun: begun)
    } else {
      try container.addKey(testCredential(key))
      keys.append(keys.last.union([key]), begun: begun)
    }
    keys.acknowledge(at: io.log.count)
  }

  func reopen() throws {
    arriving = nil
    try container.close()
    try open()
    if let difference = model.difference(from: try container.model(parcels: parcels)) {
      throw Disagreement(description: "after opening again " + difference)
    }
    history.acknowledge(at: io.log.count)
  }

  private func open() throws {
    container = try Container.open(
      io: io, credential: testCredential(Self.constantKey), options: testOptions(durability))
  }

  /// Takes the disk away at some moment of the near past, loses what it may lose, and goes on with what is left.
  func crash(_ random: inout SplitMix64) throws -> String {
    let log = io.log
    let losses = CrashPlan.Loss.certain + [.some(seed: random.next()), .tornLast(seed: random.next())]
    let plan = CrashPlan(
      operationCount: max(creation, log.count - [0, 0, 1, 2, 3, 5, 9, 17].randomElement(using: &random)!),
      loss: losses.randomElement(using: &random)!)
    let possible = history.possible(after: plan.operationCount)
    let possibleKeys = keys.possible(after: plan.operationCount)
    arriving = nil
    kept = [:]
    start = plan.replay(log, from: start)
    creation = 0
    io = RecordingIO(start)
    try open()
    let shown = try container.model(parcels: parcels)
    guard let state = possible.last(where: { $0.difference(from: shown) == nil }) else {
      throw Disagreement(
        description: "\(plan): compared with the last of \(possible.count) possible states, "
          + possible.last!.difference(from: shown)!)
    }
    if let finding = container.findings.first(where: { !CrashHarness.isTrace($0) }) {
      throw Disagreement(description: "\(plan): \(finding)")
    }
    var fitting: Set = [Self.constantKey]
    for key in keys.last.union(possibleKeys.flatMap { $0 }) where key != Self.constantKey {
      do {
        _ = try Container.open(
          io: io, credential: testCredential(key), mode: .readOnly, options: testOptions())
        fitting.insert(key)
      } catch ContainerError.wrongKey {}
    }
    guard possibleKeys.contains(fitting) else {
      throw Disagreement(description: "\(plan): keys \(fitting), expected one of \(possibleKeys)")
    }
    model = state
    history = History(state, durable: io.log.count)
    keys = History(fitting, durable: io.log.count)
    return "\(plan)"
  }

  /// What the container shows now, and that nothing in it is damaged.
  func check() throws {
    if let difference = model.difference(from: try container.model(parcels: parcels)) {
      throw Disagreement(description: difference)
    }
    if let finding = try container.verify().findings.first(where: { !CrashHarness.isTrace($0) }) {
      throw Disagreement(description: "verify reports \(finding)")
    }
  }

  // MARK: Messages

  func enqueue(_ path: String, id: Identifier) throws {
    let begun = io.log.count
    if model.isRoot(path) { return }
    let message = OutgoingMessage(
      id: id, receiver: "com.example.receiver", message: Array(path.utf8), attachments: [path])
    guard let files = model.attachedFiles(path) else {
      #expect(throws: ContainerError.self) { try container.enqueue(message) }
      return
    }
    let number = try container.enqueue(message).number
    guard model.delivery.outbox[number] == nil else {
      throw Disagreement(description: "the number \(number) is given again")
    }
    var after = model
    after.delivery.outbox[number] = DeliveryModel.Outgoing(
      id: id, mayBeOffered: false, message: message.message, files: files)
    note(after, begun: begun, isDurable: durability != .none)
  }

  /// Part of a pinned version: as it was when the message was put in.
  func readOutbox(_ number: UInt64, _ random: inout SplitMix64) throws {
    let message = model.delivery.outbox[number]!
    let expected = try container.outboxFiles(number, from: 0, limit: .max).flatMap {
      message.files[String(decoding: $0.path, as: UTF8.self)] ?? []
    }
    // A grain of a file, or the end.
    var boundaries = [expected.count]
    var begin = 0
    for file in try container.outboxFiles(number, from: 0, limit: .max) {
      boundaries += stride(from: begin, to: begin + Int(file.size), by: 16_384)
      begin += Int(file.size)
    }
    let offset = boundaries.randomElement(using: &random)!
    let shown = try container.readOutbox(number, from: UInt64(offset))
    guard shown == Array(expected.dropFirst(offset)) else {
      throw Disagreement(description: "message \(number) from byte \(offset) on is another one")
    }
  }

  /// Goes on with the last parcel, or begins a new one. Returns what it did.
  func beginArrival(new: Bool, _ random: inout SplitMix64) throws -> String {
    arriving?.arrival.suspend()
    if let (arrival, parcel, _) = arriving { kept[parcel.message.number] = arrival.received }
    arriving = nil
    let last = parcels.last.flatMap { model.delivery.delivered.contains($0.message.number) ? nil : $0 }
    let parcel: Parcel
    if !new, let last {
      parcel = last
    } else {
      let sizes = (0..<Int.random(in: 0...3, using: &random)).map { _ in
        [0, 700, 16_384, 50_000].randomElement(using: &random)!
      }
      parcel = Parcel(sizes: sizes, number: UInt64(parcels.count + 1))
      parcels.append(parcel)
    }
    let arrival = try container.beginArrival(parcel.message)
    try parcel.addFiles(to: arrival)
    let number = parcel.message.number
    guard arrival.received >= kept[number] ?? 0 else {
      throw Disagreement(description: "\(arrival.received) of \(kept[number]!) bytes of \(number) are kept")
    }
    arriving = (arrival, parcel, Int(arrival.received))
    return "parcel \(number) from \(arrival.received) of \(parcel.contents.count)"
  }

  /// So many bytes, or all that are missing.
  func append(_ count: Int?) throws {
    let (arrival, parcel, position) = arriving!
    let byteCount = Int(parcel.message.byteCount)
    let end = min(position + (count ?? byteCount), byteCount)
    try parcel.append(to: arrival, from: position, until: end)
    arriving!.position = Int(arrival.received)
    kept[parcel.message.number] = arrival.received
  }

  func commitArrival() throws {
    let (arrival, parcel, _) = arriving!
    try append(nil)
    let begun = io.log.count
    let queued = try arrival.commit()
    var after = model
    guard after.delivery.queue[queued.arrival] == nil else {
      throw Disagreement(description: "the place \(queued.arrival) in the queue is given again")
    }
    after.arrive(parcel, in: arrival.directory)
    after.delivery.delivered.insert(parcel.message.number)
    after.delivery.queue[queued.arrival] = DeliveryModel.Queued(
      id: parcel.message.id, message: parcel.message.message,
      files: Dictionary(
        uniqueKeysWithValues: parcel.files.map { (arrival.directory + $0.path, UInt64($0.contents.count)) }))
    note(after, begun: begun, isDurable: durability != .none)
    arriving = nil
  }

  /// What is staged of others than the one that is arriving.
  func discardStaged() throws {
    try container.discardArrivals(olderThan: nil)
    kept = kept.filter { $0.key == arriving?.parcel.message.number }
  }

  func discardArrival() throws {
    guard let (arrival, parcel, _) = arriving else { return }
    try arrival.discard()
    arriving = nil
    kept[parcel.message.number] = nil
    let again = try container.beginArrival(parcel.message)
    guard again.received == 0 else { throw Disagreement(description: "what was discarded is back") }
    try again.discard()
  }
}
