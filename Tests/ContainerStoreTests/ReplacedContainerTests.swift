import Foundation
import Locks
import TestSupport
import Testing

@testable import ContainerStore

/// A container whose directory is moved, removed or replaced while a writer has it open.
struct ReplacedContainerTests {
  private static let contents = testBytes(70_000, seed: 1)
  private static let precious = testBytes(90_000, seed: 2)

  /// A directory with a closed container `c`, and one of somebody else, `other`.
  private struct World {
    let directory = TemporaryDirectory()
    let files = FileManager.default
    var place: String { directory["c"] }
    let before: [String: Data]

    init() throws {
      let container = try Container.create(
        at: directory["c"], credential: testCredential(), options: testOptions())
      try container.write(contents, to: "/first")
      try container.close()
      let other = try Container.create(
        at: directory["other"], credential: testCredential(9), options: testOptions())
      try other.write(precious, to: "/precious")
      try other.close()
      before = try Self.tree(directory["other"])
    }

    static func tree(_ path: String) throws -> [String: Data] {
      var tree: [String: Data] = [:]
      for name in try FileManager.default.subpathsOfDirectory(atPath: path) {
        tree[name] = FileManager.default.contents(atPath: path + "/" + name) ?? Data()
      }
      return tree
    }

    func open(_ io: any BlockIO) throws -> Container {
      try Container.open(io: io, credential: testCredential(), options: testOptions())
    }

    /// What is at the container's place was not touched by whoever had another one open.
    func expectOtherIsWhole(_ when: String = "") throws {
      #expect(try Self.tree(place) == before, "\(when)")
      let other = try Container.open(
        at: place, credential: testCredential(9), mode: .readOnly, options: testOptions())
      #expect(try other.contents(at: "/precious") == precious, "\(when)")
      try other.close()
    }

    /// The files of the other container over those that are there, each as a whole (like `rsync`) or its bytes alone (like `cp`).
    func putOtherOver(renaming: Bool) throws {
      for (name, bytes) in before {
        let target = place + "/" + name
        var isDirectory: ObjCBool = false
        _ = files.fileExists(atPath: directory["other/" + name], isDirectory: &isDirectory)
        if isDirectory.boolValue { continue }
        if renaming {
          try bytes.write(to: URL(fileURLWithPath: target + ".new"))
          try #require(Foundation.rename(target + ".new", target) == 0)
        } else {
          writeNative(target, [UInt8](bytes))
        }
      }
    }
  }

  /// Two commits, in a slab that is there and in a new one, and the close.
  private static func work(_ container: Container) throws {
    try container.write(contents, to: "/second")
    try container.write(contents, to: "/third")
    try container.close()
  }

  /// Calls of the work that a hook sees.
  private static func callCount() throws -> Int {
    let world = try World()
    let io = HookedIO(PosixBlockIO(world.place))
    let container = try world.open(io)
    let count = Guarded(0)
    io.setHook { _, _ in count.withLock { $0 += 1 } }
    try work(container)
    return count.withLock { $0 }
  }

  /// Does something to the directory right before the nth call.
  private static func work(
    _ world: World, _ number: Int, _ change: @escaping @Sendable (World) throws -> Void
  )
    throws -> Result<Void, any Error>
  {
    let io = HookedIO(PosixBlockIO(world.place))
    let container = try world.open(io)
    let left = Guarded(number)
    io.setHook { _, _ in
      guard
        left.withLock({
          $0 -= 1
          return $0 == -1
        })
      else { return }
      do { try change(world) } catch { Issue.record(error) }
    }
    let result = Result { try work(container) }
    io.setHook(nil)
    try? container.close()
    return result
  }

  @Test func movedAtAnyMomentItStaysItself() throws {
    let count = try Self.callCount()
    #expect(count > 30)
    for number in 0..<count {
      let world = try World()
      try Self.work(world, number) { world in
        try world.files.moveItem(atPath: world.place, toPath: world.directory["moved"])
        try world.files.copyItem(atPath: world.directory["other"], toPath: world.place)
      }.get()
      try world.expectOtherIsWhole("moved before call \(number)")
      let moved = try Container.open(
        at: world.directory["moved"], credential: testCredential(), mode: .readOnly, options: testOptions())
      for name in ["/first", "/second", "/third"] {
        #expect(try moved.contents(at: name) == Self.contents, "\(name), moved before call \(number)")
      }
      #expect(try moved.verify().findings.isEmpty)
      try moved.close()
    }
  }

  @Test func removedAtAnyMomentItLeavesTheNextOneAlone() throws {
    var refusals = 0
    for number in 0..<(try Self.callCount()) {
      let world = try World()
      let result = try Self.work(world, number) { world in
        try world.files.removeItem(atPath: world.place)
        try world.files.copyItem(atPath: world.directory["other"], toPath: world.place)
      }
      try world.expectOtherIsWhole("removed before call \(number)")
      if case .failure(let error) = result {
        refusals += 1
        let code = (error as? ContainerError)?.code
        #expect(
          code == .replaced || code == .readOnly || code == .ioFailed, "\(error), before call \(number)")
      }
    }
    #expect(refusals > 20)
  }

  @Test(arguments: [false, true]) func whatWasPutInItsPlaceIsNotOverwritten(renaming: Bool) throws {
    let world = try World()
    let container = try world.open(PosixBlockIO(world.place))
    try container.write(Self.contents, to: "/second")
    try world.putOtherOver(renaming: renaming)
    expectError(.replaced) { try container.write(Self.contents, to: "/third") }
    expectError(renaming ? .readOnly : .replaced) { try container.remove("/first") }
    #expect(throws: ContainerError.self) { try container.compact() }
    let error = #expect(throws: ContainerError.self) { try container.close() }
    #expect(error?.code == .replaced)
    let after = try World.tree(world.place)
    for (name, bytes) in world.before { #expect(after[name] == bytes, "\(name)") }
    // Files of the container that was there are beside it, and seem to be later ones.
    var options = testOptions()
    options.acceptsOlderState = true
    let other = try Container.open(
      at: world.place, credential: testCredential(9), mode: .readOnly, options: options)
    #expect(try other.contents(at: "/precious") == Self.precious)
    try other.close()
  }

  /// A backup of the same container: only its number of updates tells it from what is open.
  @Test func anOlderStateThatWasPutBackIsNotOverwritten() throws {
    let world = try World()
    let before = readNative(world.directory["c/superblock"])!
    let container = try world.open(PosixBlockIO(world.place))
    try container.write(Self.contents, to: "/second")
    writeNative(world.directory["c/superblock"], before)
    let error = #expect(throws: ContainerError.self) { try container.close() }
    #expect(error?.code == .replaced)
    #expect(readNative(world.directory["c/superblock"]) == before)
  }

  @Test func aLockThatWasRemovedLetsNoTwoWritersIn() throws {
    let world = try World()
    let container = try world.open(PosixBlockIO(world.place))
    try container.write(Self.contents, to: "/second")
    try container.synchronize()
    try world.files.removeItem(atPath: world.directory["c/lock"])
    let second = try world.open(PosixBlockIO(world.place))
    expectError(.replaced) { try container.write(Self.contents, to: "/third") }
    expectError(.replaced) { try container.remove("/first") }
    expectError(.readOnly) { try container.remove("/first") }
    #expect(try container.contents(at: "/second") == Self.contents)
    #expect(throws: ContainerError.self) { try container.close() }
    try second.write(Self.contents, to: "/fifth")
    try second.close()
    let report = try Container.verify(at: world.place, credential: testCredential(), options: testOptions())
    #expect(report.findings.filter { $0.severity == .damage }.isEmpty)
  }

  /// A lock shows that it is one file where its number does not.
  @Test func worksWhereNumbersOfFilesChange() throws {
    let world = try World()
    let container = try world.open(HookedIO(PosixBlockIO(world.place), hasChangingNumbers: true))
    try container.write(Self.contents, to: "/second")
    try world.files.removeItem(atPath: world.directory["c/lock"])
    let second = try world.open(HookedIO(PosixBlockIO(world.place), hasChangingNumbers: true))
    expectError(.replaced) { try container.write(Self.contents, to: "/third") }
    try Self.work(second)
  }

  /// Both slots were damaged while it was open: they are written again, and nothing is lost.
  @Test func aTornSuperblockIsWrittenAgain() throws {
    let world = try World()
    let container = try world.open(PosixBlockIO(world.place))
    try container.write(Self.contents, to: "/second")
    var bytes = readNative(world.directory["c/superblock"])!
    for offset in SuperblockSlot.offsets { bytes[Int(offset) + 100] ^= 1 }
    writeNative(world.directory["c/superblock"], bytes)
    try container.close()
    let again = try world.open(PosixBlockIO(world.place))
    #expect(try again.contents(at: "/second") == Self.contents)
    try again.close()
  }
}
