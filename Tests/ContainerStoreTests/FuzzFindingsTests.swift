import EncryptedFile
import SodiumPrimitives
import Testing

@testable import ContainerStore

/// What Fuzzing/, or reading for it, has found in parsers.
struct FuzzFindingsTests {
  private static let noSecret = [UInt8](repeating: 0, count: Inode.secretByteCount)

  @Test func refusesKeySlotsOfAnotherLength() throws {
    let zeros = [UInt8](repeating: 0, count: KeySlot.byteCount)
    #expect(try KeySlot.decode(zeros) == nil)
    for count in [0, 1, KeySlot.byteCount - 1, KeySlot.byteCount + 1] {
      let bytes = [UInt8](repeating: 0, count: count)
      #expect(throws: MalformedBytes.self, "\(count) bytes") { try KeySlot.decode(bytes) }
    }
  }

  @Test(arguments: [56, 64, 72, 80, 95])
  func refusesTheEndOfAPredecessorThatIsNone(offset: Int) throws {
    let header = JournalHeader(
      session: .zero, generation: 1, created: 0, predecessor: nil, commit: 9)
    var bytes = header.encoded
    #expect(try JournalHeader(bytes) == header)
    bytes[offset] = 1
    #expect(throws: MalformedBytes.self) { try JournalHeader(bytes) }
  }

  @Test func refusesDeliveriesToPathsThatAreNotUTF8() throws {
    let bytes = Delivery(time: 1, fileCount: 2, byteCount: 3, path: "/Inbox/ü").encoded
    #expect(try Delivery(bytes).encoded == bytes)
    #expect(throws: MalformedBytes.self) { try Delivery(Array(bytes.dropLast())) }
  }

  @Test func refusesCommitsThatCannotBeCountedOn() throws {
    func body(commit: UInt64) throws -> [UInt8] {
      let key = [UInt8](repeating: 1, count: 32)
      return try SuperblockBody(
        created: 0, epoch: .init(number: 1, key: testKey(key)),
        generation: Generation(number: 1, epoch: 1, state: .complete, secret: key, commit: commit, tables: [])
      ).encoded
    }
    #expect(try SuperblockBody(body(commit: 1 << 62 - 1)).generations[0].commit == 1 << 62 - 1)
    for commit in [1 << 62, UInt64.max] {
      #expect(throws: MalformedBytes.self) { try SuperblockBody(body(commit: commit)) }
    }
  }

  /// Commits whatever `change` puts, as a faulty writer could, and reads the container again.
  private func container(_ change: (Transaction) throws -> Void) throws -> Container {
    let fixture = try Fixture()
    try fixture.container.store.transaction { try change($0) }
    return try fixture.reopened(mode: .readOnly)
  }

  @Test func verifiesFilesThatAddUpToMoreThanCanBeCounted() throws {
    let container = try container { transaction in
      while transaction.takeFileID() < 105 {}
      for id in UInt64(100)..<105 {
        var inode = Inode(kind: .file, permissions: 0o600, now: 0, epoch: 1, secret: Self.noSecret)
        inode.size = 1 << 62 - 1
        transaction.put(id, inode)
        try transaction.link(rootFileID, FileName("\(id)")!, to: id, kind: .file)
      }
    }
    let report = try container.verify()
    #expect(report.fileCount == 5)
    #expect(report.byteCount == .max)
    #expect(!report.hasDamage)
  }

  @Test func reportsAnIDThatIsGivenOutNextAndIsInUse() throws {
    let container = try container { transaction in
      let inode = Inode(kind: .file, permissions: 0o600, now: 0, epoch: 1, secret: Self.noSecret)
      transaction.put(100, inode)
      try transaction.link(rootFileID, FileName("f")!, to: 100, kind: .file)
    }
    let findings = try container.verify().findings
    #expect(findings.contains { $0.severity == .damage && $0.detail.contains("in use") })
  }

  @Test func takesNoFirstExtentThatDoesNotLieInASlab() throws {
    for (offset, isTaken) in [(SlabStore.byteCountMax - 200, true), (1 << 33, false), (1 << 61, false)] {
      var inode = Inode(kind: .file, permissions: 0o600, now: 0, epoch: 1, secret: Self.noSecret)
      inode.size = 1
      inode.firstExtent = Extent(
        start: 0, count: 1, lastLength: 1, writeNumber: WriteNumber(session: .zero, counter: 1), slab: 0,
        offset: offset)
      #expect(((try? Inode(inode.encoded)) != nil) == isTaken, "\(offset)")
    }
    var inode = Inode(kind: .file, permissions: 0o600, now: 0, epoch: 1, secret: Self.noSecret)
    inode.size = 1 << 50
    inode.firstExtent = Extent(
      start: 0, count: 1 << 20, lastLength: 1, writeNumber: WriteNumber(session: .zero, counter: 1), slab: 0,
      offset: 0)
    #expect(throws: MalformedBytes.self) { try Inode(inode.encoded) }
  }

  @Test func beginsNoChangeWithoutAnIDForIt() throws {
    for (next, isTaken) in [(CatalogCounters.nextFileMax - 2, true), (CatalogCounters.nextFileMax, false)] {
      let fixture = try Fixture()
      fixture.container.store.catalogState.withLock { $0.counters.nextFile = next }
      if isTaken {
        try fixture.container.write([1], to: "/f")
      } else {
        expectError(.cannotStore) { try fixture.container.write([1], to: "/f") }
      }
      try fixture.container.close()
    }
  }

  @Test func reportsExtentsOfAnInodeThatCannotBe() throws {
    let extent = Extent(
      start: 1, count: 1, lastLength: 1, writeNumber: WriteNumber(session: .zero, counter: 1), slab: 0,
      offset: 0)
    let container = try container { transaction in
      transaction.put(.inode(100), [9])
      transaction.put(.extent(file: 100, start: 1), extent.encodedValue)
    }
    #expect(try container.verify().hasDamage)
  }
}
