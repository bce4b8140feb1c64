import EncryptedFile
import TestSupport
import Testing

@testable import ContainerStore

/// Several steps in one commit, as no call makes them today: what is told must be in an order that can be followed.
struct CommitChangesTests {
  private static let names = ["a", "b", "c"]

  /// What a call does to the catalog, as a part of a transaction. Nothing when it cannot be done.
  private struct Steps {
    let transaction: Transaction

    func parent(_ path: String) throws -> (id: UInt64, name: FileName)? {
      var names = path.utf8.split(separator: UInt8(ascii: "/")).map { FileName(bytes: Array($0))! }
      let name = names.removeLast()
      guard let found = try? transaction.find(ResolvedPath(names)), found.inode.kind == .directory else {
        return nil
      }
      return (found.id, name)
    }

    func create(_ path: String, _ kind: FileKind) throws {
      guard let (parent, name) = try parent(path), try transaction.entry(parent, name) == nil else { return }
      let id = transaction.takeFileID()
      if kind == .directory {
        return try transaction.makeDirectory(parent, name, id: id, permissions: 0o700)
      }
      transaction.put(
        id,
        Inode(
          kind: .file, permissions: 0o600, now: transaction.now, epoch: transaction.epoch,
          secret: [UInt8](repeating: 1, count: 32)))
      try transaction.link(parent, name, to: id, kind: .file)
    }

    func remove(_ path: String) throws {
      guard let (parent, name) = try parent(path), let entry = try transaction.entry(parent, name) else {
        return
      }
      if entry.kind == .directory {
        try transaction.dropSubtree(entry.file)
      } else {
        try transaction.dropFile(entry.file)
      }
      try transaction.unlink(parent, name)
    }

    func move(_ from: String, _ to: String) throws {
      guard from != to, !(to + "/").hasPrefix(from + "/"), let (oldParent, oldName) = try parent(from),
        let (newParent, newName) = try parent(to), let entry = try transaction.entry(oldParent, oldName),
        try transaction.entry(newParent, newName) == nil
      else { return }
      try transaction.unlink(oldParent, oldName)
      try transaction.link(newParent, newName, to: entry.file, kind: entry.kind)
    }

    /// Another name of a file.
    func link(_ path: String, _ to: String) throws {
      guard let found = try? transaction.existing(StorePath(path)), found.inode.kind == .file,
        let (parent, name) = try parent(to), try transaction.entry(parent, name) == nil
      else { return }
      var inode = found.inode
      inode.linkCount += 1
      transaction.put(found.id, inode)
      try transaction.link(parent, name, to: found.id, kind: .file)
    }
  }

  @Test(arguments: 0..<48 as Range<UInt64>)
  func commitsOfSeveralStepsCanBeFollowed(seed: UInt64) async throws {
    var random = SplitMix64(seed: seed)
    let container = try Fixture(durability: .none).container
    let observed = ["/", "/a", "/b/a"][Int(seed % 3)]
    func path() -> String {
      "/"
        + (0...Int.random(in: 0..<3, using: &random)).map { _ in Self.names.randomElement(using: &random)! }
        .joined(separator: "/")
    }
    func listed() throws -> Set<String> {
      guard let found = try container.attributes(at: observed) else { return [] }
      guard found.kind == .directory else { return [observed] }
      return Set(
        [observed]
          + (try container.list(observed, recursively: true).map {
            (observed == "/" ? "" : observed) + "/" + $0.path
          }))
    }
    var tree = try container.store.withSnapshot {
      try ObservedTree(StorePath(observed).resolved(in: $0).names, in: $0)
    }
    var mirror = TreeMirror(of: observed, paths: try listed())
    for _ in 0..<80 {
      let before = mirror.paths
      let told = try container.store.transaction { transaction in
        let steps = Steps(transaction: transaction)
        for _ in 0...Int.random(in: 0..<5, using: &random) {
          switch Int.random(in: 0..<9, using: &random) {
          case 0, 1: try steps.create(path(), .directory)
          case 2: try steps.create(path(), .file)
          case 3: try steps.remove(path())
          case 4: try steps.link(path(), path())
          case 5:
            // Two change places.
            let (one, other) = (path(), path())
            guard !(one + "/").hasPrefix(other + "/"), !(other + "/").hasPrefix(one + "/") else { continue }
            try steps.move(one, "/swap")
            try steps.move(other, one)
            try steps.move("/swap", other)
          default: try steps.move(path(), path())
          }
        }
        // Where it was left when the other could not be moved.
        try steps.remove("/swap")
        return try tree.apply(CommitChanges(transaction), transaction)
      }
      for change in told { mirror.apply(change) }
      #expect(try mirror.paths == listed(), "\(before.sorted()), \(told)")
    }
  }

  /// What `replaceItem` does, with a backup, and what saving by exchange does.
  @Test func exchangesAreMovesInTheirOrder() throws {
    let container = try Fixture().container
    for path in ["/old", "/new"] {
      try container.createDirectory(path + "/inner", withIntermediateDirectories: true)
    }
    var tree = try container.store.withSnapshot { try ObservedTree([], in: $0) }
    let replaced = try container.store.transaction { transaction in
      let steps = Steps(transaction: transaction)
      try steps.move("/old", "/backup")
      try steps.move("/new", "/old")
      return try tree.apply(CommitChanges(transaction), transaction)
    }
    #expect(replaced == [.moved(from: "/old", to: "/backup"), .moved(from: "/new", to: "/old")])
    let trashed = try container.store.transaction { transaction in
      let steps = Steps(transaction: transaction)
      try steps.create("/.Trash", .directory)
      try steps.move("/backup", "/.Trash/backup")
      return try tree.apply(CommitChanges(transaction), transaction)
    }
    #expect(trashed == [.created(path: "/.Trash"), .moved(from: "/backup", to: "/.Trash/backup")])
    let swapped = try container.store.transaction { transaction in
      let steps = Steps(transaction: transaction)
      try steps.move("/old", "/other")
      try steps.move("/.Trash", "/old")
      try steps.move("/other", "/.Trash")
      return try tree.apply(CommitChanges(transaction), transaction)
    }
    #expect(swapped.count == 5 && swapped.contains { if case .moved = $0 { true } else { false } })
  }

  @Test func aFileWithSeveralNamesIsToldUnderEach() throws {
    let container = try Fixture().container
    try container.createDirectory("/in")
    try container.write([1], to: "/in/a")
    var tree = try container.store.withSnapshot { try ObservedTree([FileName("in")!], in: $0) }
    func told(_ body: (Steps) throws -> Void) throws -> [ContainerChange] {
      try container.store.transaction { transaction in
        try body(Steps(transaction: transaction))
        return try tree.apply(CommitChanges(transaction), transaction)
      }
    }
    #expect(
      try told { try $0.link("/in/a", "/in/b") } == [
        .created(path: "/in/b"), .attributesChanged(path: "/in/a"),
      ])
    #expect(try told { try $0.link("/in/a", "/out") }.count == 2)
    let resized = try told { steps in
      var found = try steps.transaction.existing(StorePath("/out"))
      found.inode.size += 5
      found.inode.modified += 1
      steps.transaction.put(found.id, found.inode)
    }
    #expect(resized == [.changed(path: "/in/a"), .changed(path: "/in/b")])
    #expect(
      try told { try $0.remove("/in/a") } == [.removed(path: "/in/a"), .attributesChanged(path: "/in/b")])
    #expect(try told { try $0.remove("/in/b") } == [.removed(path: "/in/b")])
    #expect(try told { try $0.remove("/out") } == [])
  }
}
