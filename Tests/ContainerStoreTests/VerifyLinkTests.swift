import Testing

@testable import ContainerStore

/// Links, names and attributes as only a faulty writer could have committed them.
struct VerifyLinkTests {
  /// What `verify` says after `change` was committed beside `/d`, `/f` with another name `/g`, and the link `/l`.
  private func findings(_ change: (Transaction) throws -> Void) throws -> [String] {
    let fixture = try Fixture()
    let container = fixture.container
    try container.createDirectory("/d")
    try container.write([1], to: "/f")
    try container.createLink("/g", to: "/f")
    try container.createSymbolicLink("/l", to: "f")
    try container.setExtendedAttributes(["user.x": [1]], at: "/f")
    try container.setExtendedAttributes(["user.x": [1]], at: "/d")
    try container.store.transaction { try change($0) }
    let report = try fixture.reopened(mode: .readOnly).verify()
    #expect(report.findings.allSatisfy { $0.severity == .damage && $0.kind == .catalogInconsistent })
    return report.findings.map(\.detail)
  }

  private func existing(_ name: String, in transaction: Transaction) throws -> FoundFile {
    let id = try #require(try transaction.entry(rootFileID, FileName(name)!)).file
    return FoundFile(id: id, inode: try transaction.inode(id))
  }

  @Test func findsNothingWhereAllIsWell() throws {
    #expect(try findings { _ in } == [])
  }

  @Test(arguments: [UInt32(0), 1, 3])
  func findsAFileThatCountsItsNamesWrong(count: UInt32) throws {
    var id: UInt64 = 0
    let found = try findings { transaction in
      var file = try existing("f", in: transaction)
      id = file.id
      file.inode.linkCount = count
      transaction.put(file.id, file.inode)
    }
    #expect(found == ["file \(id) has 2 names and counts \(count)"])
  }

  @Test func findsADirectoryWithTwoNames() throws {
    let found = try findings { transaction in
      var directory = try existing("d", in: transaction)
      try transaction.link(rootFileID, FileName("e")!, to: directory.id, kind: .directory)
      directory.inode.linkCount = 2
      transaction.put(directory.id, directory.inode)
    }
    #expect(found.contains("a directory is reached twice"))
    #expect(found.contains { $0.hasSuffix("has 2 names") })
  }

  @Test func findsADirectoryWithoutAName() throws {
    let found = try findings { transaction in
      var directory = try existing("d", in: transaction)
      try transaction.unlink(rootFileID, FileName("d")!)
      directory.inode.linkCount = 0
      transaction.put(directory.id, directory.inode)
    }
    #expect(found.count == 1 && found[0].hasSuffix("has 0 names"))
  }

  /// Below the first file, between two files, and behind the last one.
  @Test(arguments: [UInt64(0), 50, 1 << 40])
  func findsAnAttributeOfAFileThatIsNotThere(id: UInt64) throws {
    let found = try findings { transaction in
      if id == 50 {
        while transaction.takeFileID() < 60 {}
        let secret = [UInt8](repeating: 0, count: Inode.secretByteCount)
        transaction.put(60, Inode(kind: .file, permissions: 0, now: 0, epoch: 1, secret: secret))
        try transaction.link(rootFileID, FileName("z")!, to: 60, kind: .file)
      }
      transaction.putAttribute(of: id, [1], [2])
    }
    let impossible = id == 0 ? ["a record of type 40: an id that cannot be"] : []
    #expect(found == impossible + ["an extended attribute of a file that is not there"])
  }

  @Test(arguments: [0, 256])
  func findsAnAttributeWhoseNameCannotBe(nameByteCount: Int) throws {
    let found = try findings { transaction in
      let name = [UInt8](repeating: 0x61, count: nameByteCount)
      transaction.putAttribute(of: try existing("f", in: transaction).id, name, [1])
    }
    #expect(found == ["an extended attribute that cannot be"])
  }

  @Test func findsASymbolicLinkWithoutATarget() throws {
    let found = try findings { transaction in
      var link = try existing("l", in: transaction)
      link.inode.target = []
      link.inode.size = 0
      transaction.put(link.id, link.inode)
    }
    #expect(found.contains("an inode that cannot be"))
  }

  @Test func findsANameOfAnotherKindThanItsFile() throws {
    let found = try findings { transaction in
      let link = try existing("l", in: transaction).id
      try transaction.link(rootFileID, FileName("l")!, to: link, kind: .file)
    }
    #expect(found == ["a directory entry of another kind than its file"])
  }

  // MARK: Records that no writer makes

  /// Keys in hexadecimal digits. Files 0 and numbers 0 do not exist; file 99 does not either.
  @Test(arguments: [
    ("0100", "type 1: a key with further bytes"),
    ("10 0000000000000000 61", "type 10: an id that cannot be"),
    ("20 0000000000000000", "type 20: an id that cannot be"),
    ("30 0000000000000000 0000000000000000", "type 30: an id that cannot be"),
    ("30 0000000000000063 0000000000000000 00", ""),
    ("50 0000000100", "type 50: no key of a slab"), ("50 80000000", "type 50: no key of a slab"),
    ("61 6100 0000000000000000 00000000000000010000000000000001", "a delivery that cannot be"),
    ("80", "type 80: an anchor"), ("80 0000000000000001", "type 80: an anchor"),
    ("80 0000000000000001 00", "type 80: an anchor"),
  ])
  func findsARecordThatCannotBe(key: String, what: String) throws {
    let digits = key.filter { $0 != " " }
    let bytes = stride(from: 0, to: digits.count, by: 2).map {
      UInt8(digits.dropFirst($0).prefix(2), radix: 16)!
    }
    let found = try findings { $0.put(CatalogKey(bytes: bytes), [1]) }
    #expect(!found.isEmpty)
    #expect(what.isEmpty || found.contains { $0.contains(what) }, "\(found)")
  }

  /// Shorter than the number and the id that a key of an arrival ends with.
  @Test(arguments: [1, 7, 8, 23, 24, 25])
  func aShortKeyOfAnArrivalIsFoundAndDoesNotEndTheProcess(count: Int) throws {
    let key = [0x61] + [UInt8](repeating: 0, count: count)
    let found = try findings { $0.put(CatalogKey(bytes: key), []) }
    #expect(found.contains { $0.contains("a delivery that cannot be") }, "\(found)")
  }
}
