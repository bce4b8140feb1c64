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
    for i in 0..<20 { try container.write([UInt8](repeating: UInt8(i), count: 20_000), to: "/file\(i)") }
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
  @Test(arguments: [CrashPlan.Loss.nothing, .everythingUnsynchronized])
  func goesOnAfterACrash(loss: CrashPlan.Loss) throws {
    let io = RecordingIO()
    let container = try container(io)
    let id = container.id
    try container.close()
    let (before, begin) = (io.image, io.log.count)
    try Container.destroy(io: io, id: id)
    let changes = Array(io.log[begin...])
    let overwritten = try #require(changes.firstIndex(of: .synchronize("superblock")))
    for count in 0...changes.count {
      let image = CrashPlan(operationCount: count, loss: loss).replay(changes, from: before)
      let disk = RecordingIO(image)
      let opened = Result { try Container.open(io: disk, credential: testCredential(), mode: .readOnly) }
      if count > overwritten { #expect((try? opened.get()) == nil) }
      if case .success(let container) = opened {
        #expect(try container.contents(at: "/file3").count == 20_000)
        try container.close()
      }
      // Not before: opening may have gone on with it.
      let other = RecordingIO(image)
      if (try? Destruction.id(in: other)) == id { try Container.destroy(io: other, id: id) }
      #expect(Set(other.image.names.keys) == [], "after \(count) of \(changes.count)")
      let new = RecordingIO(image)
      if count == 0 { continue }
      if (try? Destruction.id(in: new)) != nil, new.image.names["superblock"] != nil { continue }
      try Container.create(io: new, credential: testCredential(2), options: testOptions()).close()
      let created = try Container.open(io: new, credential: testCredential(2))
      #expect(try created.list("/").isEmpty)
      try created.close()
    }
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
