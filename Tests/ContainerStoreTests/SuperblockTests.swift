import EncryptedFile
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

private let rawKey = TestSecret.rawKey(7)
private let passphrase = TestSecret.passphrase("correct horse")

/// Two moments of one container: the later one has a superblock that is exactly one update newer.
private struct TwoMoments {
  var older: DiskImage
  var newer: DiskImage

  init(_ secret: TestSecret) throws {
    let io = RecordingIO()
    let container = try Container.create(io, secret)
    try container.write([1, 2, 3], to: "/file")
    try container.close()
    let opened = try Container.open(io, secret, mode: .readWrite)
    older = io.image
    try opened.addKey(TestSecret.rawKey(99).credential())
    newer = io.image
  }

  /// What a crash between the two writes of the update leaves, or an attacker who puts one slot back.
  func mixed(newestAt index: Int) -> DiskImage {
    var image = newer
    image.setSlot(1 - index, older.slot(1 - index))
    return image
  }
}

/// A field of a superblock slot, changed by somebody without the key who knows how checksums are made.
struct FieldChange: Sendable, CustomTestStringConvertible {
  var field: String
  var offset: Int
  var mask: UInt8 = 1
  /// What the container says when it is opened with the right raw key, or with the right passphrase.
  var rawKey: ContainerError.Code = .superblockAltered
  var passphrase: ContainerError.Code = .superblockAltered

  var testDescription: String { "\(field) at byte \(offset)" }

  func expected(_ secret: TestSecret) -> ContainerError.Code {
    if case .rawKey = secret { rawKey } else { passphrase }
  }

  static let all: [FieldChange] = [
    FieldChange(field: "format version", offset: 8, mask: 3),
    FieldChange(
      field: "minimum reader version", offset: 10, mask: 1, rawKey: .unsupportedFormat,
      passphrase: .unsupportedFormat),
    FieldChange(field: "reserved bytes", offset: 12),
    FieldChange(field: "reserved bytes", offset: 15, mask: 0x80),
    FieldChange(field: "container id", offset: 16, rawKey: .wrongKey, passphrase: .wrongKey),
    FieldChange(
      field: "container id", offset: 31, mask: 0x80, rawKey: .wrongKey, passphrase: .wrongKey),
    FieldChange(field: "sequence", offset: 39, mask: 0x80),
    FieldChange(field: "reserved bytes", offset: 40),
    FieldChange(field: "reserved bytes", offset: 63),
    FieldChange(field: "key slot's kind", offset: 64, mask: 0x40),
    FieldChange(field: "key slot's reserved bytes", offset: 65),
    FieldChange(field: "passes", offset: 68, mask: 2, passphrase: .wrongKey),
    FieldChange(field: "passes", offset: 71, mask: 0x80),
    FieldChange(field: "memory", offset: 72, mask: 0x10, passphrase: .wrongKey),
    FieldChange(field: "memory", offset: 75, mask: 0x80),
    FieldChange(field: "key slot's reserved bytes", offset: 76),
    FieldChange(field: "salt", offset: 80, rawKey: .wrongKey, passphrase: .wrongKey),
    FieldChange(field: "salt", offset: 95, rawKey: .wrongKey, passphrase: .wrongKey),
    FieldChange(field: "sealed key's header", offset: 96),
    FieldChange(field: "sealed key's tag", offset: 120),
    FieldChange(field: "sealed key", offset: 130),
    FieldChange(field: "sealed key's authenticator", offset: 168),
    FieldChange(field: "commitment", offset: 169, rawKey: .wrongKey, passphrase: .wrongKey),
    FieldChange(field: "commitment", offset: 200, rawKey: .wrongKey, passphrase: .wrongKey),
    FieldChange(field: "key slot's reserved bytes", offset: 201),
    FieldChange(field: "key slot's reserved bytes", offset: 223),
    FieldChange(field: "empty key slot's kind", offset: 64 + 7 * 160),
    FieldChange(field: "empty key slot's last byte", offset: 1343),
    FieldChange(field: "body's header", offset: 1344),
    FieldChange(field: "body", offset: 2000, mask: 0x20),
    FieldChange(field: "body's authenticator", offset: 3944),
    FieldChange(field: "reserved bytes", offset: 3945),
    FieldChange(field: "reserved bytes", offset: 4031),
    FieldChange(field: "MAC", offset: 4032),
    FieldChange(field: "MAC", offset: 4063, mask: 0x80),
  ]
}

struct SuperblockTests {
  // MARK: Keys

  @Test func aWrongPassphraseIsAWrongKey() throws {
    let moments = try TwoMoments(passphrase)
    for wrong in ["correct horsf", "Correct horse", "correct horse ", "c"] {
      #expect(try Container.openingError(moments.older, .passphrase(wrong))?.code == .wrongKey)
    }
    #expect(try Container.openingError(moments.older, .rawKey(7))?.code == .wrongKey)
    #expect(try Container.openingError(moments.older, passphrase) == nil)
  }

  @Test func aRawKeyContainerDoesNotOpenWithAPassphraseOrAnotherKey() throws {
    let moments = try TwoMoments(rawKey)
    #expect(try Container.openingError(moments.older, passphrase)?.code == .wrongKey)
    #expect(try Container.openingError(moments.older, .rawKey(8))?.code == .wrongKey)
    // Not even with the key's own bytes as a passphrase.
    let bytes = TestSecret.passphrase(String(repeating: "\u{7}", count: 32))
    #expect(try Container.openingError(moments.older, bytes)?.code == .wrongKey)
    #expect(try Container.openingError(moments.older, rawKey) == nil)
  }

  @Test(arguments: [0, 1, 31, 33, 64])
  func aRawKeyHas32Bytes(count: Int) throws {
    let error = #expect(throws: ContainerError.self) {
      _ = try Credential.rawKey(SecretBytes(count: count))
    }
    #expect(error?.code == .invalidArgument)
  }

  @Test func keysAreAddedUpToEightAndRemovedDownToOne() throws {
    let io = RecordingIO()
    let container = try Container.create(io, .rawKey(0))
    for byte in 1..<8 { try container.addKey(TestSecret.rawKey(UInt8(byte)).credential()) }
    let before = io.image
    let full = #expect(throws: ContainerError.self) { try container.addKey(testCredential(8)) }
    #expect(full?.code == .noFreeKeySlot)
    #expect(io.image == before, "a refused key changes nothing")
    for byte in 0..<8 { #expect(try Container.openingError(io.image, .rawKey(UInt8(byte))) == nil) }
    #expect(try container.removeKey(testCredential(8)) == 0)
    #expect(io.image == before, "removing a key that is not there changes nothing")
    for byte in 0..<7 {
      #expect(try container.removeKey(testCredential(UInt8(byte))) == 1)
      #expect(try Container.openingError(io.image, .rawKey(UInt8(byte)))?.code == .wrongKey)
      #expect(try Container.openingError(io.image, .rawKey(7)) == nil)
    }
    let last = #expect(throws: ContainerError.self) { try container.removeKey(testCredential(7)) }
    #expect(last?.code == .invalidArgument)
    #expect(try Container.openingError(io.image, .rawKey(7)) == nil)
    // A slot that was freed is used again.
    try container.addKey(testCredential(8))
    #expect(try Container.openingError(io.image, .rawKey(8)) == nil)
    #expect(try container.info().keys.count == 2)
  }

  @Test func theCostsOfAPassphraseAreThoseThatWereAskedFor() throws {
    let io = RecordingIO()
    var options = testOptions()
    options.passwordHash = PasswordHash.Parameters(passes: 2, memoryKiB: 24)
    let container = try Container.create(io, passphrase, options)
    #expect(Array(io.image.slot(0)[68..<76]) == [2, 0, 0, 0, 24, 0, 0, 0])
    // The container's costs are used, whatever the options of an opening say, and are stored anew for a new key only.
    try container.close()
    let opened = try Container.open(io, passphrase, mode: .readWrite)
    try opened.addKey(TestSecret.passphrase("other").credential())
    #expect(Array(io.image.slot(1)[68..<76]) == [2, 0, 0, 0, 24, 0, 0, 0])
    #expect(Array(io.image.slot(1)[228..<236]) == [1, 0, 0, 0, 8, 0, 0, 0])
    #expect(try Container.openingError(io.image, .passphrase("other")) == nil)
    #expect(try Container.openingError(io.image, passphrase) == nil)
  }

  @Test(
    arguments: [
      PasswordHash.Parameters(passes: 0, memoryKiB: 8), .init(passes: 17, memoryKiB: 8),
      .init(passes: 1, memoryKiB: 7), .init(passes: 1, memoryKiB: 1 << 20 + 1),
    ])
  func costsThatNoReaderAcceptsAreNotWritten(costs: PasswordHash.Parameters) throws {
    var options = testOptions()
    options.passwordHash = costs
    let nothing = RecordingIO()
    let refused = #expect(throws: ContainerError.self) {
      _ = try Container.create(nothing, passphrase, options)
    }
    #expect(refused?.code == .invalidArgument)
    #expect(nothing.log.isEmpty, "nothing is left behind")
    let io = RecordingIO()
    let container = try Container.create(io, rawKey, options)
    let before = io.image
    let added = #expect(throws: ContainerError.self) { try container.addKey(passphrase.credential()) }
    #expect(added?.code == .invalidArgument)
    #expect(io.image == before)
  }

  @Test func anEmptyPassphraseIsNotTaken() throws {
    let refused = #expect(throws: ContainerError.self) {
      _ = try Container.create(RecordingIO(), .passphrase(""))
    }
    #expect(refused?.code == .invalidArgument)
    let container = try Container.create(RecordingIO(), rawKey)
    let added = #expect(throws: ContainerError.self) {
      try container.addKey(TestSecret.passphrase("").credential())
    }
    #expect(added?.code == .invalidArgument)
    #expect(try Container.openingError(TwoMoments(passphrase).older, .passphrase(""))?.code == .wrongKey)
  }

  /// Eight slots that each ask for what one may cost would cost a guess eight times as much.
  @Test func whatAllSlotsCostTogetherIsBounded() throws {
    var options = testOptions()
    options.passwordHash.passes = 16
    options.passwordHashMemoryKiBMax = 16
    let io = RecordingIO()
    let container = try Container.create(io, passphrase, options)
    try container.addKey(TestSecret.passphrase("second").credential())
    let image = io.image
    let third = #expect(throws: ContainerError.self) {
      try container.addKey(TestSecret.passphrase("third").credential())
    }
    #expect(third?.code == .invalidArgument)
    #expect(io.image == image, "a key that nobody could open changes nothing")
    try container.addKey(testCredential())
    try container.close()
    options.passwordHashMemoryKiBMax = 15
    let costly = #expect(throws: ContainerError.self) {
      _ = try Container.open(io: io, credential: passphrase.credential(), options: options)
    }
    #expect(costly?.code == .invalidArgument)
    #expect(costly?.detail?.contains("passwordHashMemoryKiBMax") == true)
    // A raw key costs nothing.
    try Container.open(io: io, credential: testCredential(), options: options).close()
  }

  // MARK: Torn slots

  @Test(arguments: [8, 9, 64, 1344, 4064, 4095])
  func aSuperblockThatIsCutIsTorn(byteCount: Int) throws {
    var image = try TwoMoments(rawKey).newer
    image["superblock"] = Array(image["superblock"]!.prefix(byteCount))
    #expect(try Container.openingError(image, rawKey)?.code == .superblockTorn)
    image["superblock"] = Array("garbage, and none of a container".utf8)
    #expect(try Container.openingError(image, rawKey)?.code == .notAContainer)
  }

  @Test func aDirectoryThatIsMissingIsCalledMissing() throws {
    let directory = TemporaryDirectory()
    func what(_ path: String) throws -> String? {
      let error = #expect(throws: ContainerError.self) {
        _ = try Container.open(at: path, credential: testCredential(), options: testOptions())
      }
      #expect(error?.code == .notAContainer)
      return error?.what
    }
    #expect(try what(directory.path + "/missing") == "there is no such directory")
    #expect(try what(directory.path) == ContainerError.Code.notAContainer.what)
  }

  @Test(arguments: [8, 32, 64, 1344, 4032, 4063, 4064, 4095])
  func twoTornSlotsAreTorn(offset: Int) throws {
    var image = try TwoMoments(rawKey).newer
    for index in 0..<2 { image.alterSlot(index, at: offset, xor: 1, fixingChecksum: false) }
    #expect(try Container.openingError(image, rawKey)?.code == .superblockTorn)
    #expect(try Container.openingError(image, rawKey, mode: .readWrite)?.code == .superblockTorn)
    #expect(try Container.verify(image, rawKey).findings.map(\.kind) == [.superblockSlotTorn])
  }

  @Test(arguments: [0, 1], [0, 8, 500, 4064])
  func oneTornSlotIsReportedAndSetRightByAWriter(index: Int, offset: Int) throws {
    var image = try TwoMoments(rawKey).newer
    image.alterSlot(index, at: offset, xor: 1, fixingChecksum: false)
    let reader = RecordingIO(image)
    let opened = try Container.open(reader, rawKey)
    #expect(opened.findings.map(\.kind) == [.superblockSlotTorn])
    #expect(opened.findings.map(\.severity) == [.damage])
    #expect(try opened.contents(at: "/file") == [1, 2, 3])
    #expect(reader.image == image, "a reader changes nothing")
    let io = RecordingIO(image)
    let writer = try Container.open(io, rawKey, mode: .readWrite)
    #expect(writer.findings.map(\.kind) == [.superblockSlotTorn])
    #expect(io.image.slot(0) == io.image.slot(1))
    try writer.close()
    #expect(try Container.verify(io.image, rawKey).findings == [])
  }

  @Test func aSuperblockThatEndsAfterItsFirstSlotHasOneTornSlot() throws {
    let whole = try TwoMoments(rawKey).newer
    for count in [4096, 65536, 69631] {
      var image = whole
      image["superblock"]!.removeSubrange(count...)
      #expect(try Container.open(image, rawKey).findings.map(\.kind) == [.superblockSlotTorn])
    }
    var image = whole
    image["superblock"]!.removeSubrange(4095...)
    #expect(try Container.openingError(image, rawKey)?.code == .superblockTorn)
  }

  // MARK: Altered slots

  @Test(arguments: FieldChange.all)
  func aFieldAlteredInBothSlotsIsRefused(change: FieldChange) throws {
    for secret in [rawKey, passphrase] {
      var image = try TwoMoments(secret).newer
      for index in 0..<2 { image.alterSlot(index, at: change.offset, xor: change.mask) }
      #expect(try Container.openingError(image, secret)?.code == change.expected(secret))
      #expect(
        try Container.openingError(image, secret, mode: .readWrite)?.code == change.expected(secret))
    }
  }

  @Test(arguments: FieldChange.all)
  func aFieldAlteredInTheNewestSlotIsNotAnsweredFromTheOlderOne(change: FieldChange) throws {
    for secret in [rawKey, passphrase] {
      let moments = try TwoMoments(secret)
      for index in 0..<2 {
        var image = moments.mixed(newestAt: index)
        image.alterSlot(index, at: change.offset, xor: change.mask)
        var expected: Set = [change.expected(secret)]
        // The other slot's id shows that one of the two was altered; without it, the key does not fit.
        if change.field == "container id" { expected.insert(.superblockAltered) }
        let code = try Container.openingError(image, secret)?.code
        #expect(code.map(expected.contains) == true, "slot \(index): \(String(describing: code))")
      }
    }
  }

  @Test(arguments: FieldChange.all)
  func aFieldAlteredInOneOfTwoSlotsOfOneNumberIsRefused(change: FieldChange) throws {
    let image = try TwoMoments(rawKey).newer
    for index in 0..<2 {
      var altered = image
      altered.alterSlot(index, at: change.offset, xor: change.mask)
      let code = try Container.openingError(altered, rawKey)?.code
      #expect(code == (change.rawKey == .unsupportedFormat ? .unsupportedFormat : .superblockAltered))
    }
  }

  @Test(arguments: FieldChange.all)
  func aFieldAlteredInTheOlderSlotIsReported(change: FieldChange) throws {
    // Altered, the sequence would make it the newest.
    guard change.field != "sequence" else { return }
    let moments = try TwoMoments(rawKey)
    for index in 0..<2 {
      var image = moments.mixed(newestAt: index)
      image.alterSlot(1 - index, at: change.offset, xor: change.mask)
      do {
        #expect(try Container.verify(image, rawKey).hasDamage)
      } catch ContainerError.unsupportedFormat {
        #expect(change.rawKey == .unsupportedFormat)
      }
    }
  }

  @Test func twoAuthenticSlotsOfOneNumberThatDifferAreAltered() throws {
    let moments = try TwoMoments(rawKey)
    let opened = try OpenedSlot(moments.newer.slot(0), rawKey)
    var body = opened.body
    body.created += 1
    var image = moments.newer
    image.setSlot(1, try opened.sealing(body).bytes)
    #expect(try Container.openingError(image, rawKey)?.code == .superblockAltered)
    image.setSlot(0, image.slot(1))
    #expect(try Container.openingError(image, rawKey) == nil)
  }

  @Test func anAuthenticBodyThatCannotBeIsAltered() throws {
    let image = try TwoMoments(rawKey).newer
    let opened = try OpenedSlot(image.slot(0), rawKey)
    func code(_ change: (inout SuperblockBody) -> Void) throws -> ContainerError.Code? {
      var body = opened.body
      change(&body)
      var image = image
      let sealed = try opened.sealing(body).bytes
      for index in 0..<2 { image.setSlot(index, sealed) }
      return try Container.openingError(image, rawKey)?.code
    }
    #expect(try code { _ in } == nil)
    #expect(try code { $0.currentEpoch += 1 } == .superblockAltered)
    #expect(try code { $0.epochs.append($0.epochs[0]) } == .superblockAltered)
    #expect(try code { $0.generations = [$0.generations[0], $0.generations[0]] } == .superblockAltered)
    #expect(try code { $0.generations[0].state = .pending } == .superblockAltered)
    #expect(try code { $0.generations[0].epoch = 9 } == .superblockAltered)
    #expect(try code { $0.journal!.generation = 9 } == .superblockAltered)
  }

  // MARK: Versions and costs

  @Test func aNewerFormatIsToldBeforeAnyKeyIsTried() throws {
    for secret in [rawKey, passphrase] {
      var image = try TwoMoments(secret).newer
      for index in 0..<2 {
        image.alterSlot(index, at: 8, xor: 4)
        image.alterSlot(index, at: 10, xor: 4)
        // Whatever else a newer format has changed.
        image.alterSlot(index, at: 64, xor: 0x70)
        image.alterSlot(index, at: 12, xor: 1)
      }
      for tried in [rawKey, passphrase, .passphrase("wrong")] {
        let error = try Container.openingError(image, tried)
        #expect(error?.code == .unsupportedFormat)
        #expect(error?.detail?.contains("format 7") == true)
      }
    }
  }

  @Test func aNewerFormatInOneSlotIsNotPassedOver() throws {
    for index in 0..<2 {
      var image = try TwoMoments(rawKey).newer
      image.alterSlot(index, at: 10, xor: 1)
      #expect(try Container.openingError(image, rawKey)?.code == .unsupportedFormat)
    }
  }

  @Test(
    arguments: [
      (0, 8), (17, 8), (UInt32.max, 8), (1, 0), (1, 7), (1, 1 << 20 + 1), (1, UInt32.max), (.max, .max),
    ] as [(UInt32, UInt32)])
  func costsOutOfTheirLimitsAreRefusedBeforeAHashIsComputed(passes: UInt32, memoryKiB: UInt32) throws {
    // Also when another key slot would open: a hash of 4 TiB would fail with another error.
    for secret in [passphrase, TestSecret.rawKey(99)] {
      var image = try TwoMoments(passphrase).newer
      for index in 0..<2 {
        var slot = image.slot(index)
        slot.replaceSubrange(68..<76, with: littleEndian(passes) + littleEndian(memoryKiB))
        image.setSlot(index, withChecksum(slot))
      }
      #expect(try Container.openingError(image, secret)?.code == .superblockAltered)
    }
  }

  // MARK: Older slots

  @Test(arguments: [0, 1])
  func aSlotThatIsOneUpdateOlderIsNotedAndBroughtUpToDate(index: Int) throws {
    let moments = try TwoMoments(rawKey)
    let image = moments.mixed(newestAt: 1 - index)
    let report = try Container.verify(image, rawKey)
    #expect(report.findings.map(\.kind) == [.superblockSlotOutdated])
    #expect(report.findings.map(\.severity) == [.note])
    // The newer one counts: the key that the update added opens it.
    #expect(try Container.openingError(image, .rawKey(99)) == nil)
    let io = RecordingIO(image)
    let writer = try Container.open(io, rawKey, mode: .readWrite)
    #expect(writer.findings.map(\.kind) == [.superblockSlotOutdated])
    #expect(io.image.slot(0) == io.image.slot(1))
    #expect(
      try OpenedSlot(io.image.slot(0), rawKey).sequence > OpenedSlot(moments.newer.slot(0), rawKey).sequence)
    try writer.close()
    #expect(try Container.verify(io.image, rawKey).findings == [])
    #expect(try Container.openingError(io.image, .rawKey(99)) == nil)
  }

  @Test(arguments: [0, 1])
  func aSlotThatIsSeveralUpdatesOlderIsDamage(index: Int) throws {
    let io = RecordingIO()
    let container = try Container.create(io, rawKey)
    let old = io.image.slot(index)
    for byte in 10..<12 { try container.addKey(testCredential(UInt8(byte))) }
    var image = io.image
    image.setSlot(index, old)
    let report = try Container.verify(image, .rawKey(11))
    #expect(report.findings.map(\.kind) == [.superblockSlotOutdated])
    #expect(report.hasDamage)
  }

  /// The slot that is not in use has a right checksum, and is not authentic.
  @Test(arguments: [0, 1])
  func anOlderSlotThatWasAlteredIsDamageAndRepaired(index: Int) throws {
    var image = try TwoMoments(rawKey).mixed(newestAt: 1 - index)
    image.alterSlot(index, at: 1400, xor: 1)
    #expect(try Container.verify(image, rawKey).findings.contains { $0.kind == .superblockSlotAltered })
    let io = RecordingIO(image)
    let report = try Container.repair(io: io, credential: rawKey.credential(), options: testOptions())
    #expect(report.wasWritten && !report.hasLoss)
    #expect(try Container.verify(io.image, rawKey).findings == [])
  }

  @Test func aRemovedPassphraseIsNotRevivedBySpoilingOneSlot() throws {
    let io = RecordingIO()
    let container = try Container.create(io, rawKey)
    try container.addKey(TestSecret.passphrase("removed").credential())
    let before = io.image
    try container.removeKey(TestSecret.passphrase("removed").credential())
    let after = io.image
    #expect(try Container.openingError(before, .passphrase("removed")) == nil)
    for index in 0..<2 {
      // The removal was acknowledged: each slot alone knows of it.
      for offset in [0, 100, 2000, 4095] {
        var image = after
        image.alterSlot(index, at: offset, xor: 0x20, fixingChecksum: false)
        #expect(try Container.openingError(image, .passphrase("removed"))?.code == .wrongKey)
        #expect(try Container.openingError(image, rawKey) == nil)
      }
      // An old slot is put back.
      var image = after
      image.setSlot(index, before.slot(index))
      #expect(try Container.openingError(image, .passphrase("removed"))?.code == .wrongKey)
      // And the new one altered, so that it does not open: there is no way back.
      for offset in [32, 96, 1344, 4032] {
        var spoiled = image
        spoiled.alterSlot(1 - index, at: offset, xor: 0x20)
        let code = try Container.openingError(spoiled, .passphrase("removed"))?.code
        #expect(code == .wrongKey || code == .superblockAltered)
      }
    }
  }

  @Test func aCrashAnywhereInAnUpdateLeavesTheOldKeysOrTheNewOnes() throws {
    let moments = try TwoMoments(rawKey)
    let io = RecordingIO(moments.older)
    let container = try Container.open(io, rawKey, mode: .readWrite)
    let begin = io.log.count
    try container.addKey(TestSecret.passphrase("new").credential())
    try container.removeKey(rawKey.credential())
    var seen: Set<String> = []
    for count in begin...io.log.count {
      for loss in [CrashPlan.Loss.nothing, .everythingUnsynchronized] + (0..<4).map({ .tornLast(seed: $0) }) {
        let image = CrashPlan(operationCount: count, loss: loss).replay(io.log, from: moments.older)
        let old = try Container.openingError(image, rawKey, mode: .readWrite) == nil
        let new = try Container.openingError(image, .passphrase("new"), mode: .readWrite) == nil
        #expect(old || new, "crash after \(count), \(loss)")
        seen.insert("\(old) \(new)")
      }
    }
    #expect(seen == ["true false", "true true", "false true"])
  }

  // MARK: Places

  @Test func whatIsNoContainerIsToldApart() throws {
    let directory = TemporaryDirectory()
    func code(_ path: String, _ mode: Container.Mode = .readOnly) -> ContainerError.Code? {
      do {
        _ = try Container.open(at: directory.path + path, credential: testCredential(), mode: mode)
        return nil
      } catch {
        return (error as? ContainerError)?.code
      }
    }
    mkdir(directory.path + "/empty", 0o700)
    writeNative(directory.path + "/file", [1, 2, 3])
    for mode in [Container.Mode.readOnly, .readWrite] {
      #expect(code("/empty", mode) == .notAContainer)
      #expect(code("/file", mode) == .notAContainer)
      #expect(code("/missing", mode) == .notAContainer)
      #expect(code("/file/below", mode) == .notAContainer)
    }
    #expect(readNative(directory.path + "/empty/lock") == nil, "looking leaves nothing behind")
    for contents in [[], [UInt8](repeating: 0, count: 69632), testBytes(69632, seed: 1)] {
      writeNative(directory.path + "/empty/superblock", contents)
      #expect(code("/empty") == .notAContainer)
    }
  }

  @Test func aCreationThatWasKilledIsDoneAgain() throws {
    let io = RecordingIO()
    try Container.create(io: io, credential: testCredential(), options: testOptions()).close()
    let log = io.log
    var unfinishedCount = 0
    for count in 1...log.count {
      let image = CrashPlan(operationCount: count, loss: .nothing).replay(log)
      let isThere = image["superblock"] != nil
      do {
        try Container.create(io: RecordingIO(image), credential: testCredential(), options: testOptions())
          .close()
        #expect(!isThere, "after operation \(count) there was a container")
        unfinishedCount += 1
      } catch ContainerError.alreadyExists {
        #expect(isThere, "after operation \(count) there was no container")
      }
    }
    #expect(unfinishedCount > 8)
  }

  @Test func aContainerThatLostItsSuperblockIsNotTakenForNew() throws {
    let io = RecordingIO()
    let container = try Container.create(io: io, credential: testCredential(), options: testOptions())
    try container.write([1], to: "/file")
    try container.close()
    try io.remove("superblock")
    let error = #expect(throws: ContainerError.self) {
      _ = try Container.create(io: io, credential: testCredential(), options: testOptions())
    }
    #expect(error?.code == .alreadyExists)
  }

  @Test func aContainerIsMadeOnlyWhereThereIsNothing() throws {
    let directory = TemporaryDirectory()
    func create(_ path: String) throws -> Container {
      try Container.create(at: directory.path + path, credential: testCredential(), options: testOptions())
    }
    writeNative(directory.path + "/file", [1])
    for name in ["/directory", "/remains", "/remains/catalog", "/remains/slab", "/empty"] {
      mkdir(directory.path + name, 0o700)
    }
    writeNative(directory.path + "/directory/something", [1])
    _ = try create("/container")
    try create("/empty").close()
    try create("/remains").close()
    for path in ["/file", "/directory", "/container"] {
      let error = #expect(throws: ContainerError.self) { _ = try create(path) }
      #expect(error?.code == .alreadyExists)
      #expect(error?.path == directory.path + path)
    }
    let missing = #expect(throws: ContainerError.self) { _ = try create("/missing/container") }
    #expect(missing?.code == .noSuchFile)
    #expect(readNative(directory.path + "/file") == [1])
  }

  @Test func aSecondWriterIsToldWhoTheFirstIs() throws {
    let directory = TemporaryDirectory()
    let path = directory.path + "/container"
    let writer = try Container.create(at: path, credential: testCredential(), options: testOptions())
    try writer.write([1], to: "/file")
    let error = #expect(throws: ContainerError.self) {
      _ = try Container.open(at: path, credential: testCredential())
    }
    #expect(error?.code == .locked)
    #expect(error?.path == path)
    #expect(error?.detail?.hasPrefix("process \(getpid())") == true)
    // Readers are welcome, see the state of their opening, and keep nobody out.
    let before = try Container.open(at: path, credential: testCredential(), mode: .readOnly)
    try writer.write([2, 2], to: "/file")
    let after = try Container.open(at: path, credential: testCredential(), mode: .readOnly)
    #expect(try before.contents(at: "/file") == [1])
    #expect(try after.contents(at: "/file") == [2, 2])
    try writer.close()
    let next = try Container.open(at: path, credential: testCredential())
    try next.remove("/file")
    try next.close()
    #expect(try before.contents(at: "/file") == [1])
    #expect(try after.contents(at: "/file") == [2, 2])
  }
}

/// A slot that was opened, so that a test can seal what no writer would.
private struct OpenedSlot {
  let slot: SuperblockSlot
  let body: SuperblockBody
  private let secret: TestSecret
  private let cipher = SecretStreamCipher(.preferred)

  init(_ bytes: [UInt8], _ secret: TestSecret) throws {
    guard case .good(let slot) = SuperblockSlot.read(bytes) else { throw ContainerError(.superblockTorn) }
    self.slot = slot
    self.secret = secret
    body = try slot.open(rootKey: Self.rootKey(slot, secret))
  }

  var sequence: UInt64 { slot.sequence }

  func sealing(_ body: SuperblockBody) throws -> SuperblockSlot {
    try SuperblockSlot.make(
      containerID: slot.containerID, sequence: slot.sequence, keySlots: slot.keySlots, body: body,
      rootKey: Self.rootKey(slot, secret))
  }

  private static func rootKey(_ slot: SuperblockSlot, _ secret: TestSecret) throws -> SecretKey {
    try Superblock.rootKey(slot, credential: secret.credential(), options: Container.Options(), in: .shared)
  }
}

func littleEndian<T: FixedWidthInteger>(_ value: T) -> [UInt8] {
  withUnsafeBytes(of: value.littleEndian) { [UInt8]($0) }
}
