import ContainerStore
import SodiumPrimitives
import TestSupport
import Testing

#if canImport(Glibc)
  import Glibc
#elseif canImport(Darwin)
  import Darwin
#endif

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

/// Long random lives of two containers against plain dictionaries.
struct RandomLifeTests {
  static let lives = Array(0..<(TestEffort.count(2, long: 4, all: 200)))

  @Test(arguments: [Container.Durability.full, .grouped, .none], lives)
  func behavesLikeADictionaryAlsoAfterCrashes(durability: Container.Durability, life: Int) throws {
    let seed = SplitMix64.testSeed &+ UInt64(life) &* 1000 &+ UInt64(durability.rawValue.utf8.count)
    var random = SplitMix64(seed: seed)
    let sides = [try Side(durability), try Side(durability)]
    let sample = NativeSample(seed: seed)
    var trail: [String] = []
    func name() -> String { ["a", "b", "c", "d"].randomElement(using: &random)! }
    func path() -> String {
      (0..<Int.random(in: 1...3, using: &random)).map { _ in "/" + name() }.joined()
    }
    do {
      for step in 1...TestEffort.count(400, long: 400, all: 1500) {
        let number = Int.random(in: 0..<2, using: &random)
        let side = sides[number]
        let from = path()
        let to = path()
        let flag = Bool.random(using: &random)
        trail.append("\(number): ")
        switch Int.random(in: 0..<86, using: &random) {
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
        case 64..<67:
          let bytes = testBytes([1, 100, 20_000].randomElement(using: &random)!, seed: random.next())
          let offset = [0, 99, 16_000, 40_000].randomElement(using: &random)!
          trail.append("overwrite \(bytes.count) \(from) at \(offset)")
          try side.change {
            $0.overwrite(bytes, at: offset, from)
          } _: {
            let file = try $0.openFile(from, .readWrite)
            try bytes.withUnsafeBytes { try file.write($0, at: UInt64(offset)) }
            try file.close()
          }
        case 67..<70 where side.model.delivery.outbox.count < 4:
          trail.append("enqueue \(from)")
          let id = random.next()
          try side.enqueue(from, id: Identifier(testBytes(16, seed: id)))
        case 67..<72:
          guard let number = side.model.delivery.outbox.keys.sorted().randomElement(using: &random) else {
            continue
          }
          trail.append("settle \(number)")
          try side.change {
            $0.delivery.outbox[number] = nil
            return true
          } _: {
            try $0.settleOutbox(number)
          }
        case 72..<75:
          guard let number = side.model.delivery.outbox.keys.sorted().randomElement(using: &random) else {
            continue
          }
          trail.append("\(flag ? "mark" : "read") message \(number)")
          if flag {
            try side.change(isDurable: durability != .none) {
              $0.delivery.outbox[number]!.mayBeOffered = true
              return true
            } _: {
              try $0.markOffered(number)
            }
          } else {
            try side.readOutbox(number, &random)
          }
        case 75:
          trail.append("compact")
          try side.container.compact()
        case 76..<81:
          if flag || side.arriving == nil {
            trail.append("begin")
            trail.append(try side.beginArrival(new: Bool.random(using: &random), &random))
          }
          let count = Int.random(in: 1...70_000, using: &random)
          if count > 40_000 {
            trail.append("commit the arrival")
            try side.commitArrival()
          } else {
            trail.append("append \(count) to the arrival")
            try side.append(count)
          }
        case 81:
          trail.append("discard \(flag)")
          if flag {
            try side.discardArrival()
          } else {
            try side.discardStaged()
          }
        case 82:
          guard let arrival = side.model.delivery.queue.keys.sorted().randomElement(using: &random) else {
            continue
          }
          trail.append("end \(arrival)")
          try side.change(isDurable: false) {
            $0.delivery.queue[arrival] = nil
            return true
          } _: {
            try $0.endQueued(arrival)
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
      Issue.record("OPENDYNAMICS_TEST_SEED=\(SplitMix64.testSeed), life \(life): \(error): \(last)")
    }
  }
}
