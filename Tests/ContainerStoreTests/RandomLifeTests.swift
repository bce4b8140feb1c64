import ContainerStore
import OpenDynamicsTesting
import Testing

#if canImport(Glibc)
  import Glibc
#elseif canImport(Darwin)
  import Darwin
#endif

extension Container {
  /// Everything that the model knows of.
  fileprivate func model() throws -> TreeModel {
    var model = TreeModel()
    for file in try list("/", recursively: true) {
      let path = "/" + file.path
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
    return model
  }
}

/// A native tree to import, and the same as a model sees it.
private struct NativeSample {
  let directory = TemporaryDirectory()
  let tree: [String: TreeModel.Node]

  init(seed: UInt64) {
    var tree = ["": TreeModel.Node(permissions: 0o750), "/a": TreeModel.Node(permissions: 0o700)]
    for (i, path) in ["/b", "/a/c", "/a/d"].enumerated() {
      tree[path] = TreeModel.Node(
        contents: testBytes(7000 * i, seed: seed + UInt64(i)), permissions: 0o640)
    }
    tree["/a/b"] = TreeModel.Node(target: "../b", permissions: 0o777)
    for (path, node) in tree.sorted(by: { $0.key < $1.key }) {
      let native = directory.path + "/sample" + path
      if let target = node.target {
        symlink(target, native)
        continue
      }
      if let contents = node.contents { writeNative(native, contents) } else { mkdir(native, 0o700) }
      chmod(native, mode_t(node.permissions))
    }
    self.tree = tree
  }

  var place: String { directory.path + "/sample" }
}

/// A container, its model, and all that a crash may lead back to.
private final class Side {
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
  func change(_ expected: (inout TreeModel) -> Bool, _ operation: (Container) throws -> Void) throws {
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
    note(after, begun: begun)
  }

  private func note(_ after: TreeModel, begun: Int) {
    model = after
    history.append(after, begun: begun)
    if durability == .full { history.acknowledge(at: io.log.count) }
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
    try container.close()
    try open()
    if let difference = model.difference(from: try container.model()) {
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
    start = plan.replay(log, from: start)
    creation = 0
    io = RecordingIO(start)
    try open()
    let shown = try container.model()
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
    if let difference = model.difference(from: try container.model()) {
      throw Disagreement(description: difference)
    }
    if let finding = try container.verify().findings.first(where: { !CrashHarness.isTrace($0) }) {
      throw Disagreement(description: "verify reports \(finding)")
    }
  }
}

/// Long random lives of two containers against plain dictionaries.
struct RandomLifeTests {
  static let lives = Array(0..<(runsLong ? 200 : 4))

  @Test(arguments: [Container.Durability.full, .grouped, .none], lives)
  func behavesLikeADictionaryAlsoAfterCrashes(durability: Container.Durability, life: Int) throws {
    let seed = testSeed &+ UInt64(life) &* 1000 &+ UInt64(durability.rawValue.utf8.count)
    var random = SplitMix64(seed: seed)
    let sides = [try Side(durability), try Side(durability)]
    let sample = NativeSample(seed: seed)
    var trail: [String] = []
    func name() -> String { ["a", "b", "c", "d"].randomElement(using: &random)! }
    func path() -> String {
      (0..<Int.random(in: 1...3, using: &random)).map { _ in "/" + name() }.joined()
    }
    do {
      for step in 1...(runsLong ? 1500 : 400) {
        let number = Int.random(in: 0..<2, using: &random)
        let side = sides[number]
        let from = path()
        let to = path()
        let flag = Bool.random(using: &random)
        trail.append("\(number): ")
        switch Int.random(in: 0..<66, using: &random) {
        case 0..<12:
          let size = [0, 1, 100, 16384, 16385, 50_000].randomElement(using: &random)!
          let bytes = testBytes(size, seed: random.next())
          trail.append("write \(size) \(from)")
          try side.change {
            $0.write(bytes, to: from)
          } _: {
            try $0.write(bytes, to: from)
          }
        case 12..<18:
          trail.append("mkdir \(from) \(flag)")
          try side.change {
            $0.makeDirectory(from, withIntermediates: flag)
          } _: {
            try $0.createDirectory(from, withIntermediateDirectories: flag)
          }
        case 18..<24:
          trail.append("move \(from) \(to) \(flag)")
          try side.change {
            $0.move(from, to: to, replacing: flag)
          } _: {
            try $0.move(from, to: to, replacing: flag)
          }
        case 24..<28:
          trail.append("copy \(from) \(to) \(flag)")
          try side.change {
            $0.copy(from, to: to, replacing: flag)
          } _: {
            try $0.copy(from, to: to, replacing: flag)
          }
        case 28..<33:
          trail.append("remove \(from) \(flag)")
          try side.change {
            $0.remove(from, recursively: flag)
          } _: {
            try $0.remove(from, recursively: flag)
          }
        case 33..<36:
          let date = Int64(random.next() >> 2)
          trail.append("attributes \(from)")
          try side.change {
            $0.setAttributes(from, created: date, permissions: 0o640)
          } _: {
            try $0.setAttributes(at: from, created: date, permissions: 0o640)
          }
        case 36..<38:
          trail.append("import \(from)")
          try side.change {
            $0.importTree(sample.tree, to: from)
          } _: {
            try $0.importItem(at: sample.place, to: from)
          }
        case 38..<40:
          trail.append("send \(from)")
          try side.send(from, to: sides[1 - number])
        case 40:
          // Else messages would pile up.
          trail.append("empty the inbox")
          try side.change {
            $0.remove("/Inbox", recursively: true)
          } _: {
            try $0.remove("/Inbox")
          }
        case 41:
          trail.append("synchronize")
          try side.synchronize()
        case 42:
          trail.append("key")
          try side.toggleKey(flag ? 8 : 9)
        case 43:
          trail.append("reopen")
          try side.reopen()
        case 44..<50:
          let target = [to, String(to.dropFirst()), "../" + name(), "..", "/"].randomElement(using: &random)!
          trail.append("link \(from) -> \(target)")
          try side.change {
            $0.makeSymbolicLink(from, to: target)
          } _: {
            try $0.createSymbolicLink(from, to: target)
          }
        case 50..<54:
          trail.append("second name \(to) of \(from)")
          try side.change {
            $0.makeLink(to, to: from)
          } _: {
            try $0.createLink(to, to: from)
          }
        case 54..<58:
          let backup = flag ? name() : nil
          let keepsMetadata = Bool.random(using: &random)
          trail.append("replace \(to) with \(from), backup \(backup ?? "none"), \(keepsMetadata)")
          try side.change {
            $0.replace(to, with: from, backup: backup, keepsMetadata: keepsMetadata)
          } _: {
            try $0.replaceItem(at: to, with: from, backup: backup, keepsMetadata: keepsMetadata)
          }
        case 58..<61:
          let value = testBytes(Int.random(in: 0..<100, using: &random), seed: random.next())
          var changes: [String: [UInt8]?] = [name(): value]
          changes.updateValue(nil, forKey: name())
          trail.append("extended attributes \(changes.keys.sorted()) \(from) \(flag)")
          try side.change {
            $0.setExtendedAttributes(changes, at: from, followingLinks: flag)
          } _: {
            try $0.setExtendedAttributes(changes, at: from, followingLinks: flag)
          }
        case 61..<64:
          let bytes = testBytes([1, 100, 20_000].randomElement(using: &random)!, seed: random.next())
          trail.append("append \(bytes.count) \(from)")
          try side.change {
            $0.append(bytes, to: from)
          } _: {
            let file = try $0.openFile(from, .readWrite)
            _ = try bytes.withUnsafeBytes { try file.append($0) }
            try file.close()
          }
        default:
          trail.append("crash")
          trail.append(try side.crash(&random))
        }
        if step % 50 == 0 { for side in sides { try side.check() } }
      }
      for side in sides {
        try side.reopen()
        try side.check()
      }
    } catch {
      let last = trail.suffix(60).joined(separator: "; ")
      Issue.record("OPENDYNAMICS_TEST_SEED=\(testSeed), life \(life): \(error): \(last)")
    }
  }
}
