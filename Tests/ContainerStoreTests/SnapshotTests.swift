import OpenDynamicsTesting
import TestSupport
import Testing

@testable import ContainerStore

struct SnapshotTests {
  @Test(arguments: [Container.Durability.full, .grouped, .none])
  func aSnapshotStaysAsItWasWhileTheOwnerGoesOn(durability: Container.Durability) throws {
    let io = RecordingIO()
    let container = try Container.create(
      io: io, credential: testCredential(), options: testOptions(durability))
    for i in 0..<40 { try container.write(testBytes(30_000, seed: UInt64(i)), to: "/file\(i)") }
    let handle = try container.openFile("/file0", .readWrite)
    try [UInt8](repeating: 9, count: 10).withUnsafeBytes { try handle.write($0, at: 5) }
    let before = try container.tree()
    let snapshot = try container.snapshot()
    #expect(snapshot.mode == .readOnly)
    #expect(try snapshot.tree() == before)
    for i in 0..<40 where i % 2 == 0 { try container.write([1], to: "/file\(i)") }
    for i in 0..<40 where i % 2 == 1 { try container.remove("/file\(i)") }
    try container.synchronize()
    try container.compact()
    #expect(try snapshot.tree() == before)
    #expect(try snapshot.verify().findings.filter { $0.severity == .damage }.isEmpty)
    try snapshot.close()
    let later = try container.snapshot()
    #expect(try later.tree() == container.tree())
    try later.close()
    try handle.close()
    try container.close()
    #expect(throws: ContainerError.self) { try container.snapshot() }
  }

  @Test func spaceComesBackWhenASnapshotIsClosed() throws {
    let directory = TemporaryDirectory()
    let container = try Container.create(
      at: directory.path + "/c", credential: testCredential(), options: testOptions(.full))
    try container.write(testBytes(3_000_000, seed: 1), to: "/large")
    try container.write([1], to: "/small")
    let snapshot = try container.snapshot()
    try container.remove("/large")
    #expect(try container.info().slabByteCount >= 3_000_000)
    #expect(try snapshot.contents(at: "/large") == testBytes(3_000_000, seed: 1))
    try snapshot.close()
    try container.write([2], to: "/small")
    try container.compact()
    #expect(try container.info().deadByteCount < 100_000)
    try container.close()
  }
}
