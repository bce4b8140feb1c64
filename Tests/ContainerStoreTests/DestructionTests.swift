import Foundation
import OpenDynamicsTesting
import SodiumPrimitives
import TestSupport
import Testing

@testable import ContainerStore

/// A container that is destroyed opens with nothing any more, whenever that is interrupted.
struct DestructionTests {
  private func container(_ io: RecordingIO) throws -> Container {
    let container = try Container.create(io: io, credential: testCredential(), options: testOptions())
    for i in 0..<4 { try container.write([UInt8](repeating: UInt8(i), count: 20_000), to: "/file\(i)") }
    return container
  }

  @Test func nothingIsLeftAndNothingElseIsTouched() throws {
    let directory = TemporaryDirectory()
    let path = directory.path + "/container"
    let container = try Container.create(at: path, credential: testCredential(), options: testOptions())
    try container.write([1, 2, 3], to: "/a")
    let id = container.id
    expectError(.locked) { try Container.destroy(at: path, id: id) }
    try container.close(.now, because: "wiped")
    try Data("mine".utf8).write(to: URL(fileURLWithPath: path + "/slab/notes.txt"))
    expectError(.invalidArgument) { try Container.destroy(at: path, id: Identifier.random()) }
    #expect(try Container.id(at: path) == id)
    try Container.destroy(at: path, id: id)
    #expect(try FileManager.default.subpathsOfDirectory(atPath: path).sorted() == ["slab", "slab/notes.txt"])
    expectError(.notAContainer) { try Container.destroy(at: path, id: id) }
    expectError(.notAContainer) { try Container.id(at: path) }
    expectError(.notAContainer) { try Container.open(at: path, credential: testCredential()) }
    try FileManager.default.removeItem(atPath: path + "/slab")
    let again = try Container.create(at: path, credential: testCredential(), options: testOptions())
    #expect(try again.list("/").isEmpty && again.id != id)
    try again.close()
    try Container.destroy(at: path, id: again.id)
    #expect(!FileManager.default.fileExists(atPath: path))
  }

  /// Whatever a crash leaves: until the superblock is overwritten it is the container, and then nothing opens it, and whoever comes next goes on.
  @Test(
    arguments: CrashPlan.Loss.certain
      + (0..<UInt64(TestEffort.count(2, long: 32))).flatMap { [.some(seed: $0), .tornLast(seed: $0)] })
  func goesOnAfterACrash(loss: CrashPlan.Loss) throws {
    let io = RecordingIO()
    let container = try container(io)
    let id = container.id
    try container.close()
    let (before, begin) = (io.image, io.log.count)
    try Container.destroy(io: io, id: id)
    let changes = Array(io.log[begin...])
    let overwritten = try #require(changes.lastIndex(of: .synchronize("superblock")))
    var stateCounts: [String: Int] = [:]
    for count in 0...changes.count {
      let image = CrashPlan(operationCount: count, loss: loss).replay(changes, from: before)
      let disk = RecordingIO(image)
      let opened = Result { try Container.open(io: disk, credential: testCredential(), mode: .readOnly) }
      if case .success(let container) = opened {
        #expect(count <= overwritten)
        #expect(try container.contents(at: "/file3").count == 20_000)
        try container.close()
        stateCounts["whole", default: 0] += 1
      }
      let isBegun = try Destruction.isBegun(RecordingIO(image))
      if isBegun {
        // An opening removes nothing.
        #expect(Set(image.names.keys).isSubset(of: disk.image.names.keys))
        let error = #expect(throws: ContainerError.self) { try opened.get() }
        #expect(error?.code == .notAContainer && error?.detail == "it was destroyed")
        stateCounts["begun", default: 0] += 1
      }
      let other = RecordingIO(image)
      if (try? Destruction.id(in: other)) == id { try Container.destroy(io: other, id: id) }
      // Nothing is left that nobody can go on with.
      #expect(Set(other.image.names.keys).subtracting(["lock"]) == [], "after \(count) of \(changes.count)")
      if case .success = opened { continue }
      guard isBegun || Set(image.names.keys).isSubset(of: ["lock"]) else {
        // Both slots are torn, in the middle of being overwritten.
        #expect(count <= overwritten)
        continue
      }
      let new = RecordingIO(image)
      try Container.create(io: new, credential: testCredential(2), options: testOptions()).close()
      let created = try Container.open(io: new, credential: testCredential(2))
      #expect(try created.list("/").isEmpty)
      try created.close()
    }
    #expect(stateCounts.count == 2)
  }

  /// A slot that cannot be written or read spares neither the other nor the container.
  @Test(arguments: SuperblockSlot.offsets) func oneBadSlotIsNoReason(offset: UInt64) throws {
    let io = RecordingIO()
    let container = try container(io)
    let id = container.id
    try container.close()
    io.setFault { operation, _ in
      guard case .write("superblock", offset + 64, _) = operation else { return nil }
      return EIO
    }
    #expect(throws: (any Error).self) { try Container.destroy(io: io, id: id) }
    let bytes = try #require(io.image.names["superblock"].flatMap { io.image.contents[$0] })
    let other = Int(SuperblockSlot.offsets.first { $0 != offset }!)
    #expect(bytes[(other + 64)..<(other + 4096)].allSatisfy { $0 == 0 })
    io.setFault(nil)
    try Container.destroy(io: io, id: id)
    #expect(io.image.names.isEmpty)
  }

  /// What cannot be removed is gone on with by the next call.
  @Test func whatIsLeftKeepsItsMark() throws {
    let io = RecordingIO()
    let container = try container(io)
    let id = container.id
    try container.close()
    io.setFault { operation, _ in
      guard case .remove(let path) = operation, path.hasPrefix("slab/") else { return nil }
      return EBUSY
    }
    try Container.destroy(io: io, id: id)
    #expect(io.image.names["destroyed"] != nil && io.image.names["lock"] != nil)
    #expect(try Destruction.id(in: io) == id)
    io.setFault(nil)
    try Container.destroy(io: io, id: id)
    #expect(io.image.names.isEmpty)
  }

  /// Where the superblock cannot be overwritten nothing is removed, and the error says so.
  @Test func aSecondNameOfTheSuperblockStopsIt() throws {
    let directory = TemporaryDirectory()
    let path = directory.path + "/container"
    let container = try Container.create(at: path, credential: testCredential(), options: testOptions())
    try container.write([1, 2, 3], to: "/a")
    try container.close()
    try FileManager.default.linkItem(atPath: path + "/superblock", toPath: directory.path + "/kept")
    try Data("{}".utf8).write(to: URL(fileURLWithPath: path + "/presence.json"))
    let names = try FileManager.default.subpathsOfDirectory(atPath: path).sorted()
    #expect(throws: ContainerError.self) { try Container.destroy(at: path, id: container.id) }
    #expect(try FileManager.default.subpathsOfDirectory(atPath: path).sorted() == names)
    try FileManager.default.removeItem(atPath: directory.path + "/kept")
    let again = try Container.open(at: path, credential: testCredential())
    #expect(try again.contents(at: "/a") == [1, 2, 3])
    try again.close()
    try Container.destroy(at: path, id: container.id)
    #expect(!FileManager.default.fileExists(atPath: path))
  }

  /// A file of somebody else that is called so.
  @Test(arguments: [[], Array("mine".utf8), [UInt8](repeating: 0, count: 70_000)])
  func aFileOfThatNameIsNoMark(contents: [UInt8]) throws {
    let directory = TemporaryDirectory()
    for folder in ["", "/slab"] {
      try FileManager.default.createDirectory(
        atPath: directory.path + "/x" + folder, withIntermediateDirectories: true)
    }
    let path = directory.path + "/x"
    for name in ["destroyed", "reserve", "superblock.new", "slab/00000000"] {
      try Data(contents).write(to: URL(fileURLWithPath: path + "/" + name))
    }
    let names = try FileManager.default.subpathsOfDirectory(atPath: path).sorted()
    for mode in [ContainerMode.readOnly, .readWrite] {
      expectError(.notAContainer) { try Container.open(at: path, credential: testCredential(), mode: mode) }
    }
    expectError(.alreadyExists) {
      try Container.create(at: path, credential: testCredential(), options: testOptions())
    }
    expectError(.notAContainer) { _ = try Container.id(at: path) }
    expectError(.notAContainer) { try Container.destroy(at: path, id: .random()) }
    #expect(try FileManager.default.subpathsOfDirectory(atPath: path).sorted() == names)
  }

  /// The overwritten superblock beside one that was put back is of the past.
  @Test func whatWasPutBackStays() throws {
    let io = RecordingIO()
    let container = try container(io)
    let id = container.id
    try container.close()
    let before = io.image
    var image = before
    try Container.destroy(io: io, id: id)
    image.names["destroyed"] = image.names["superblock"].map { _ in 1 << 20 }
    image.contents[1 << 20] = [UInt8](repeating: 0, count: 69_632)
    let disk = RecordingIO(image)
    let again = try Container.open(io: disk, credential: testCredential())
    #expect(try again.contents(at: "/file3").count == 20_000)
    try again.close()
  }
}
