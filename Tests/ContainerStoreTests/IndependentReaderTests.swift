import CSodium
import OpenDynamicsTesting
import SodiumPrimitives
import TestSupport
import Testing

@testable import ContainerStore

#if canImport(Glibc)
  import Glibc
#elseif canImport(Darwin)
  import Darwin
#endif

/// Fixtures/read_container.py, which was written from the format's page alone and shares no code with the library.
private struct IndependentReader {
  private static let script: String = {
    let repository = #filePath.split(separator: "/").dropLast(3).joined(separator: "/")
    return "/" + repository + "/Fixtures/read_container.py"
  }()

  /// Whether it can run here; where everything has to be there, tests do not ask.
  static let isAvailable: Bool =
    getenv("CI") != nil || run("/usr/bin/python3 -c 'import nacl' 2>/dev/null").status == 0

  let directory: TemporaryDirectory
  private let secretOption: String

  init(_ secret: TestSecret) {
    directory = TemporaryDirectory()
    switch secret {
    case .rawKey(let byte):
      writeNative(directory.path + "/key", [UInt8](repeating: byte, count: 32))
      secretOption = "--key-file"
    case .passphrase(let text):
      writeNative(directory.path + "/key", Array(text.utf8))
      secretOption = "--passphrase-file"
    }
  }

  private static func run(_ command: String) -> (output: String, status: Int32) {
    guard let pipe = popen(command, "r") else { return ("", -1) }
    var output: [UInt8] = []
    withUnsafeTemporaryAllocation(byteCount: 65536, alignment: 1) { buffer in
      while true {
        let count = fread(buffer.baseAddress!, 1, buffer.count, pipe)
        if count == 0 { break }
        output.append(contentsOf: buffer[0..<count])
      }
    }
    return (String(decoding: output, as: UTF8.self), pclose(pipe))
  }

  func run(_ command: String, on container: String) -> (output: String, status: Int32) {
    Self.run(
      "/usr/bin/python3 '\(Self.script)' '\(container)' \(secretOption) '\(directory.path)/key' \(command) 2>&1"
    )
  }

  /// What the reader makes of a container in memory.
  func read(_ image: DiskImage) -> (hashes: [String: String], isWhole: Bool, text: String) {
    let container = directory.path + "/container"
    removeTree(container)
    mkdir(container, 0o700)
    for folder in ["journal", "catalog", "copy", "slab"] { mkdir(container + "/" + folder, 0o700) }
    for (path, inode) in image.names { writeNative(container + "/" + path, image.contents[inode]!) }
    return read(at: container)
  }

  func read(at container: String) -> (hashes: [String: String], isWhole: Bool, text: String) {
    let (lines, hashStatus) = run("hash", on: container)
    var hashes: [String: String] = [:]
    for line in lines.split(separator: "\n") where line.utf8.count > 66 {
      let (hash, path) = (line.prefix(64), line.dropFirst(66))
      if hash.allSatisfy(\.isHexDigit) { hashes["/" + path] = String(hash) }
    }
    let (verdict, status) = run("verify", on: container)
    let isWhole = status == 0 && hashStatus == 0
    return (hashes, isWhole, lines + verdict)
  }
}

private func sha256(_ bytes: [UInt8]) -> String {
  var hash = [UInt8](repeating: 0, count: 32)
  crypto_hash_sha256(&hash, bytes, UInt64(bytes.count))
  return hash.map { ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined()
}

private func hashes(of tree: [String: [UInt8]?]) -> [String: String] {
  tree.compactMapValues { $0 }.mapValues(sha256)
}

@Suite(.enabled(if: IndependentReader.isAvailable, "python3-nacl is missing"))
struct IndependentReaderTests {
  private func fill(_ container: Container) throws {
    try container.createDirectory("/Documents/deep", withIntermediateDirectories: true)
    try container.write([], to: "/empty")
    for (i, count) in [1, 15, 16383, 16384, 16385, 32768, 40_001, 1 << 20 + 7].enumerated() {
      try container.write(testBytes(count, seed: UInt64(i)), to: "/Documents/deep/\(count) bytes")
    }
    try container.copy("/Documents", to: "/copy")
    try container.remove("/copy/deep/1 bytes")
    try container.move("/copy/deep", to: "/Grüße")
    try container.write(testBytes(99, seed: 50), to: "/Grüße/16384 bytes")
  }

  @Test(arguments: [TestSecret.rawKey(3), .passphrase("dreißig Zeichen, und ein Blank")])
  func readsWhatWeWriteAndCallsItWhole(secret: TestSecret) throws {
    let reader = IndependentReader(secret)
    let path = reader.directory.path + "/native"
    let container = try Container.create(at: path, credential: secret.credential(), options: testOptions())
    try fill(container)
    let sender = try Container.create(RecordingIO(), .rawKey(9))
    try sender.write(testBytes(50_000, seed: 60), to: "/letter")
    _ = try sender.send(["/letter"], to: container, sender: "com.example.sender")
    let expected = hashes(of: try container.tree())
    #expect(expected.count == 17)
    // While it is open for writing, as a copy of the moment, and after it was closed.
    let live = reader.read(at: path)
    #expect(live.hashes == expected, "\(live.text)")
    #expect(live.isWhole, "\(live.text)")
    let copy = DiskImage(native: path)
    let unclean = reader.read(copy)
    #expect(unclean.hashes == expected, "\(unclean.text)")
    #expect(unclean.isWhole, "\(unclean.text)")
    #expect(try Container.verify(copy, secret).findings.map(\.kind) == [.notClosed])
    try container.close()
    let closed = reader.read(at: path)
    #expect(closed.hashes == expected, "\(closed.text)")
    #expect(closed.isWhole, "\(closed.text)")
  }

  @Test func readsAContainerWithCheckpointsAndManyOpenings() throws {
    let reader = IndependentReader(.rawKey(7))
    let io = RecordingIO()
    try fill(Container.create(io, .rawKey(7)))
    var tree: [String: [UInt8]?] = [:]
    for i in 0..<20 {
      let container = try Container.open(io, .rawKey(7), mode: .readWrite)
      try container.write(testBytes(1000 + i, seed: UInt64(i)), to: "/Documents/round \(i % 7)")
      if i == 15 { try container.addKey(TestSecret.passphrase("second").credential()) }
      tree = try container.tree()
      try container.close()
    }
    let read = reader.read(io.image)
    #expect(read.hashes == hashes(of: tree), "\(read.text)")
    #expect(read.isWhole, "\(read.text)")
    let info = reader.run("info", on: reader.directory.path + "/container")
    #expect(info.output.contains("\"generation\": 3"), "\(info.output)")
    let second = IndependentReader(.passphrase("second"))
    #expect(second.read(io.image).hashes == read.hashes)
    #expect(IndependentReader(.passphrase("wrong")).read(io.image).text.contains("wrong key"))
  }

  @Test func readsLinksOtherNamesAndExtendedAttributes() throws {
    let reader = IndependentReader(.rawKey(7))
    let path = reader.directory.path + "/native"
    let container = try Container.create(at: path, credential: testCredential(), options: testOptions())
    try container.createDirectory("/Documents")
    try container.write(testBytes(30_000, seed: 1), to: "/Documents/file")
    try container.createLink("/other name", to: "/Documents/file")
    try container.createSymbolicLink("/link", to: "Documents/file")
    try container.setExtendedAttributes(["user.mark": [1, 2]], at: "/other name")
    try container.close()
    let list = reader.run("ls", on: path)
    #expect(list.output.contains("symlink\t14\tlink\n"), "\(list.output)")
    #expect(list.output.contains("file\t30000\tother name\n"), "\(list.output)")
    for name in ["/link", "'/other name'"] {
      let read = reader.run("cat \(name) | sha256sum", on: path)
      let direct = reader.run("cat /Documents/file | sha256sum", on: path)
      #expect(read.output == direct.output && read.status == 0, "\(read.output)")
    }
    let verdict = reader.run("verify", on: path)
    #expect(verdict.status == 0, "\(verdict.output)")
  }

  @Test func countsWhatTheOutboxKeeps() throws {
    let reader = IndependentReader(.rawKey(7))
    let path = reader.directory.path + "/native"
    let container = try Container.create(at: path, credential: testCredential(), options: testOptions())
    func enqueue(_ attachments: [String], id: UInt8) throws {
      _ = try container.enqueue(
        OutgoingMessage(
          id: Identifier(repeating: id), receiver: "com.example.receiver",
          message: testBytes(70_000, seed: UInt64(id)), attachments: attachments))
    }
    func overwrite(_ path: String, at offset: UInt64) throws {
      let file = try container.openFile(path, .readWrite)
      try testBytes(300, seed: offset).withUnsafeBytes { _ = try file.write($0, at: offset) }
      try file.close()
    }
    func expectWhole() throws {
      try container.synchronize()
      let read = reader.read(at: path)
      #expect(read.hashes == hashes(of: try container.tree()), "\(read.text)")
      #expect(read.isWhole, "\(read.text)")
    }
    try container.createDirectory("/d")
    for i in 0..<3 { try container.write(testBytes(90_000, seed: UInt64(i)), to: "/d/\(i)") }
    try container.write([], to: "/d/empty")
    try overwrite("/d/0", at: 40_000)
    try enqueue(["/d"], id: 1)
    try expectWhole()
    try overwrite("/d/0", at: 60_000)
    try enqueue(["/d/0"], id: 2)
    try overwrite("/d/0", at: 3)
    try overwrite("/d/0", at: 60_000)
    try container.remove("/d/1")
    try container.write([1], to: "/d/2")
    try enqueue([], id: 3)
    try expectWhole()
    try container.settleOutbox(1)
    try expectWhole()
    // What one says that is not so, both find.
    let mistakes: [@Sendable (Transaction) throws -> Void] = [
      { $0.delete(.outbox(2)) },
      { transaction in
        for (key, _) in try transaction.records(.all(.pinOfFile)) { transaction.delete(key) }
      },
      { transaction in
        for (key, _) in try transaction.records(.all(.pinnedExtent)) { transaction.delete(key) }
      },
      { $0.delete(.outboxMessage(2, chunk: 0)) },
      { $0.delete(.outboxState) },
      { $0.put(.outboxState, [1]) },
      { $0.put(.outboxMessage(2, chunk: 3), []) },
      { $0.put(.outboxMessage(2, chunk: 3), [1]) },
      { try $0.edit(.outbox(2)) { $0[48] ^= 1 } },
      { try $0.edit(.outbox(2)) { $0.removeLast($0.count - 56) } },
      { try $0.edit(.outbox(2)) { $0 += [UInt8](repeating: 97, count: 256) } },
      { $0.put(.outbox(0), try $0.value(.outbox(2))!) },
      { transaction in
        for (key, _) in try transaction.records(.all(.pinOfFile)) { transaction.put(key, [1]) }
      },
    ]
    for (i, mistake) in mistakes.enumerated() {
      let io = RecordingIO(DiskImage(native: path))
      let copy = try Container.open(io, .rawKey(7), mode: .readWrite)
      try copy.store.transaction(mistake)
      try copy.synchronize()
      #expect(try copy.verify().hasDamage, "mistake \(i)")
      #expect(!reader.read(io.image).isWhole, "mistake \(i)")
    }
    try container.settleOutbox(2)
    try expectWhole()
  }

  @Test func seesWhatArrives() throws {
    let reader = IndependentReader(.rawKey(7))
    let delivered = try DeliveredFixture()
    let container = delivered.container
    try container.synchronize()
    let whole = reader.read(delivered.fixture.io.image)
    #expect(whole.hashes == hashes(of: try container.tree()), "\(whole.text)")
    #expect(whole.isWhole, "\(whole.text)")
    for mistake in TestEffort.oneIn(4, of: deliveryMistakes) {
      let io = RecordingIO(delivered.fixture.io.image)
      let copy = try Container.open(io, .rawKey(7), mode: .readWrite)
      try copy.store.transaction { try mistake.change($0, delivered.arrivals) }
      try copy.synchronize()
      #expect(!reader.read(io.image).isWhole, "\(mistake.name)")
    }
  }

  @Test func agreesOnEveryTornTail() throws {
    let reader = IndependentReader(.rawKey(7))
    let io = RecordingIO()
    let container = try Container.create(io, .rawKey(7))
    for i in 0..<4 { try container.write(testBytes(3000 * i, seed: UInt64(i)), to: "/file \(i)") }
    let journal = io.image.files(in: "journal")[0]
    let count = io.image[journal]!.count
    for cut in [0, 1, count % 4096 / 2, count % 4096 - 1, count % 4096, 4096, 5000] {
      var image = io.image
      image[journal]!.removeLast(cut)
      let ours = try Container.open(image, .rawKey(7))
      let theirs = reader.read(image)
      #expect(theirs.hashes == hashes(of: try ours.tree()), "\(cut) bytes cut: \(theirs.text)")
      #expect(theirs.isWhole, "\(cut) bytes cut: \(theirs.text)")
      #expect(
        theirs.text.contains("torn tail") == ours.findings.contains { $0.kind == .tornTail },
        "\(cut) bytes cut: \(theirs.text)")
    }
  }

  @Test func agreesOnWhatWasLostByAWriterThatWasToldNotToSync() throws {
    let reader = IndependentReader(.rawKey(7))
    let io = RecordingIO()
    let container = try Container.create(io, .rawKey(7), testOptions(.none))
    try container.write(testBytes(5000, seed: 1), to: "/durable")
    try container.synchronize()
    let begin = io.log.count
    for i in 0..<4 { try container.write(testBytes(20_000, seed: UInt64(i)), to: "/file \(i)") }
    try container.close()
    for seed in 0..<8 {
      let plan = CrashPlan(operationCount: io.log.count - seed % 3, loss: .some(seed: UInt64(begin + seed)))
      let image = plan.replay(io.log)
      let ours = try Container.open(image, .rawKey(7))
      let theirs = reader.read(image)
      #expect(theirs.hashes == hashes(of: try ours.tree()), "\(plan): \(theirs.text)")
      #expect(
        theirs.text.contains("torn tail") == ours.findings.contains { $0.kind == .tornTail },
        "\(plan): \(theirs.text) \(ours.findings)")
    }
  }

  @Test func agreesOnWhatIsDamage() throws {
    let reader = IndependentReader(.rawKey(7))
    let victim = try Victim.shared.get()
    let expected = hashes(of: victim.tree)
    var random = SplitMix64(seed: 4)
    for (i, path) in victim.image.names.keys.sorted().enumerated() {
      let bytes = victim.image[path]!
      // A live byte of each file, and any byte of some.
      var offsets = i % 4 == 0 && !bytes.isEmpty ? [Int(random.next() % UInt64(bytes.count))] : []
      if let range = victim.anatomy.live[path]?.randomElement(using: &random) {
        offsets.append(range.randomElement(using: &random)!)
      }
      for offset in offsets {
        var image = victim.image
        image.flipBit(Int(random.next() & 7), at: offset, of: path)
        let ours = Verdict(image, .rawKey(7), states: [victim.tree])
        let theirs = reader.read(image)
        #expect(
          theirs.isWhole != ours.isDetected, "byte \(offset) of \(path): \(theirs.text) \(ours.findings)")
        #expect(theirs.hashes.allSatisfy { expected[$0.key] == $0.value }, "byte \(offset) of \(path)")
      }
    }
  }
}
