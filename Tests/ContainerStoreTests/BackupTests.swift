import Foundation
import Locks
import TestSupport
import Testing

@testable import ContainerStore

struct BackupTests {
  /// What a backup has made so far looks like a creation that ended too early.
  @Test func nobodyMakesAContainerWhereABackupIsBeingMade() throws {
    let directory = TemporaryDirectory()
    let (path, copy) = (directory.path + "/container", directory.path + "/copy")
    let container = try Container.create(
      at: path, credential: testCredential(), options: testOptions(.grouped))
    try container.write(testBytes(40_000, seed: 1), to: "/file")
    try container.synchronize()
    let tree = try container.tree()
    var refusals: [ContainerError.Code] = []
    try container.backup(
      to: copy,
      control: BulkControl(progress: { _ in
        let error = #expect(throws: ContainerError.self) {
          _ = try Container.create(at: copy, credential: testCredential(), options: testOptions(.grouped))
        }
        if let error { refusals.append(error.code) }
      }))
    #expect(refusals.contains(.locked) && refusals.allSatisfy { $0 == .locked || $0 == .alreadyExists })
    let backup = try Container.open(at: copy, credential: testCredential(), options: testOptions())
    #expect(try backup.tree() == tree)
    try backup.close()
    try container.close()
  }

  @Test(arguments: [Container.Durability.full, .grouped, .none])
  func aBackupIsTheContainerAsItWas(durability: Container.Durability) throws {
    let directory = TemporaryDirectory()
    let path = directory.path + "/container"
    let container = try Container.create(
      at: path, credential: testCredential(), options: testOptions(durability))
    for i in 0..<30 { try container.write(testBytes(40_000, seed: UInt64(i)), to: "/file\(i)") }
    try container.write(testBytes(2_000_000, seed: 99), to: "/large")
    try container.remove("/file3")
    // Somebody goes on writing while it is copied.
    let copies = Guarded<[(path: String, tree: Tree)]>([])
    let complaints = inThreads(2) { thread in
      for i in 0..<20 {
        if thread == 0 {
          try container.write(testBytes(30_000, seed: UInt64(i)), to: "/file\(i)")
          try container.remove("/file\(20 + i % 10)")
          try container.write([1], to: "/file\(20 + i % 10)")
        } else if i % 5 == 0 {
          let snapshot = try container.snapshot()
          let copy = directory.path + "/copy\(i)"
          try snapshot.backup(to: copy)
          let tree = try snapshot.tree()
          copies.withLock { $0.append((copy, tree)) }
          try snapshot.close()
        }
      }
      return nil
    }
    #expect(complaints == [])
    let last = try container.tree()
    try container.backup(to: directory.path + "/last")
    try container.close()
    for (copy, tree) in copies.withLock({ $0 }) + [(directory.path + "/last", last)] {
      let report = try Container.verify(at: copy, credential: testCredential(), options: testOptions())
      #expect(report.findings.isEmpty, "\(report.findings)")
      let opened = try Container.open(at: copy, credential: testCredential(), options: testOptions())
      #expect(try opened.tree() == tree)
      try opened.write([5], to: "/new")
      try opened.close()
    }
    #expect(copies.withLock { $0.count } == 4)
  }

  /// Whatever a kill leaves of a backup, the next one to the same place succeeds; what is anything else stays.
  @Test func aBackupThatWasKilledIsReplaced() throws {
    let directory = TemporaryDirectory()
    let (path, copy) = (directory.path + "/container", directory.path + "/copy")
    let container = try Container.create(at: path, credential: testCredential(), options: testOptions())
    for i in 0..<3 { try container.write(testBytes(40_000, seed: UInt64(i)), to: "/file\(i)") }
    // As it is at each moment in which the process could be killed: without its locks.
    let unfinished = Guarded<[String]>([])
    try container.backup(
      to: copy,
      control: BulkControl(progress: { _ in
        let name = directory.path + "/unfinished\(unfinished.withLock { $0.count })"
        #expect(throws: Never.self) {
          try FileManager.default.copyItem(atPath: copy, toPath: name)
        }
        unfinished.withLock { $0.append(name) }
      }))
    let tree = try container.tree()
    #expect(unfinished.withLock { $0.count } > 2)
    for place in unfinished.withLock({ $0 }) {
      try container.backup(to: place)
      let opened = try Container.open(at: place, credential: testCredential(), mode: .readOnly)
      #expect(try opened.tree() == tree)
      try opened.close()
      expectError(.alreadyExists, path: place) { try container.backup(to: place) }
    }
    // With anything that no backup makes, or without its mark, it stays.
    for change in ["/mine", "/lock"] {
      let place = directory.path + change.replacing("/", with: "/other-")
      try container.backup(
        to: directory.path + "/x" + change.dropFirst(),
        control: BulkControl(progress: { _ in
          try? FileManager.default.copyItem(atPath: directory.path + "/x" + change.dropFirst(), toPath: place)
        }))
      writeNative(place + change, [1])
      expectError(.alreadyExists, path: place) { try container.backup(to: place) }
      #expect(readNative(place + change) == [1])
    }
    try container.close()
  }
}
