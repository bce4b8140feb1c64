import EncryptedFile
import OpenDynamicsTesting
import TestSupport
import Testing

@testable import ContainerStore

/// Reading in order, which opens units ahead on other threads, and reading much at once, which several threads do.
struct ReadAheadTests {
  private static let unit = UnitAhead.byteCount
  private let fixture: Fixture
  private var container: Container { fixture.container }

  init() throws {
    fixture = try Fixture(durability: .grouped)
  }

  private func read(_ file: OpenFile, at offset: Int, _ count: Int) throws -> [UInt8] {
    var bytes = [UInt8](repeating: 0xaa, count: count)
    let done = try bytes.withUnsafeMutableBytes { try file.read(at: UInt64(offset), into: $0) }
    return Array(bytes.prefix(done))
  }

  private func write(_ bytes: [UInt8], to file: OpenFile, at offset: Int) throws {
    try bytes.withUnsafeBytes { try file.write($0, at: UInt64(offset)) }
  }

  @Test(arguments: [1 << 19, 3 << 20]) func readsNothingAtOffsetsThatNoFileHas(count: Int) throws {
    try container.write([1], to: "/file")
    let file = try container.openFile("/file", .readWrite)
    var bytes = [UInt8](repeating: 0, count: count)
    for offset in [.max, .max - 1, UInt64.max - UInt64(count), 1 << 63, UInt64(Int64.max), 1 << 62] {
      #expect(try bytes.withUnsafeMutableBytes { try file.read(at: offset, into: $0) } == 0)
      #expect(throws: ContainerError.self) {
        try bytes.withUnsafeBytes { try file.write($0, at: offset) }
      }
    }
    #expect(file.size == 1)
  }

  @Test(arguments: [1000, 64 << 10, 100_000, 1 << 20, 1_500_000])
  func readingInOrderSeesWhatIsWrittenMeanwhile(piece: Int) throws {
    var model = testBytes(6 * Self.unit + 77, seed: UInt64(piece))
    try container.write(model, to: "/file")
    let reader = try container.openFile("/file", .read)
    let writer = try container.openFile("/file", .readWrite)
    var random = SplitMix64(seed: UInt64(piece))
    var offset = 0
    while offset < model.count {
      // Shortly ahead of the reader, where it has been opened already.
      if random.next() % 4 == 0, offset + piece < model.count {
        let place = min(model.count - 1, offset + piece + Int(random.next() % UInt64(2 * Self.unit)))
        let bytes = testBytes(min(5000, model.count - place), seed: random.next())
        model.replaceSubrange(place..<(place + bytes.count), with: bytes)
        try write(bytes, to: writer, at: place)
        if random.next() % 2 == 0 { try writer.synchronize() }
      }
      let bytes = try read(reader, at: offset, piece)
      try #require(bytes == Array(model[offset..<min(model.count, offset + piece)]), "at \(offset)")
      offset += bytes.count
    }
    #expect(try read(reader, at: model.count, piece) == [])
  }

  @Test func aFileThatIsCutOrGrowsWhileItIsReadEndsWhereItEnds() throws {
    let bytes = testBytes(5 * Self.unit, seed: 1)
    try container.write(bytes, to: "/file")
    let reader = try container.openFile("/file", .read)
    let writer = try container.openFile("/file", .readWrite)
    for i in 0..<8 {
      #expect(try read(reader, at: i << 16, 1 << 16) == Array(bytes[(i << 16)..<((i + 1) << 16)]))
    }
    try writer.truncate(to: UInt64(Self.unit + 10))
    #expect(try read(reader, at: 8 << 16, Self.unit).count == Self.unit + 10 - 8 << 16)
    #expect(try read(reader, at: Self.unit, 1 << 16) == Array(bytes[Self.unit..<(Self.unit + 10)]))
    try writer.truncate(to: UInt64(3 * Self.unit))
    #expect(try read(reader, at: Self.unit + 10, 1 << 16) == [UInt8](repeating: 0, count: 1 << 16))
    try container.remove("/file")
    #expect(try read(reader, at: 0, 1 << 16) == Array(bytes[..<(1 << 16)]))
  }

  @Test func muchAtOnceComesWithHolesAndWhatIsNotStoredYet() throws {
    var model = testBytes(4 * Self.unit + 5, seed: 2)
    try container.write(model, to: "/file")
    let file = try container.openFile("/file", .readWrite)
    try write([1, 2, 3], to: file, at: 9 * Self.unit)
    model += [UInt8](repeating: 0, count: 9 * Self.unit - model.count) + [1, 2, 3]
    for place in [10, Self.unit - 2, 3 * Self.unit + 16_384] {
      try write([7, 7, 7, 7], to: file, at: place)
      model.replaceSubrange(place..<(place + 4), with: [7, 7, 7, 7])
    }
    for offset in [0, 1, Self.unit, 2 * Self.unit - 1] {
      #expect(try read(file, at: offset, model.count) == Array(model[offset...]))
    }
    #expect(try read(file, at: model.count, 4 * Self.unit) == [])
  }

  @Test func whatIsBeforeADamagedPlaceComesAndThenTheDamage() throws {
    let bytes = testBytes(6 * Self.unit, seed: 3)
    try container.write(bytes, to: "/file")
    let file = try container.openFile("/file", .read)
    _ = try read(file, at: 0, 1)
    let node = try #require(container.writeBack.files.nodes.first)
    let segment = try #require(
      node.state.withLock { $0.map?.segment(UInt64(4 * SegmentLayout.segmentsPerUnit + 3)) })
    let slab = try fixture.io.open(SlabStore.name(segment.slab), .readWrite)
    try slab.write([UInt8](repeating: 0, count: 100), at: segment.offset + 500)
    #expect(try read(file, at: 0, bytes.count) == Array(bytes[..<(4 * Self.unit)]))
    #expect { try read(file, at: 4 * Self.unit, 2 * Self.unit) } throws: {
      ($0 as? ContainerError)?.code == .fileDamaged
    }
    // In order: as far as the unit, and behind it.
    var offset = 0
    while offset < 4 * Self.unit {
      offset += try read(file, at: offset, 1 << 17).count
    }
    #expect(offset == 4 * Self.unit)
    #expect { try read(file, at: offset, 1 << 17) } throws: { ($0 as? ContainerError)?.code == .fileDamaged }
    #expect(
      try read(file, at: 5 * Self.unit, 1 << 17) == Array(bytes[(5 * Self.unit)..<(5 * Self.unit + 1 << 17)]))
  }

  @Test func handlesAndContainersGoWhileUnitsAreUnderWay() throws {
    for i in 0..<20 {
      let io = RecordingIO()
      var container: Container? = try Container.create(
        io: io, credential: testCredential(), options: testOptions(.grouped))
      try container?.write(testBytes(5 * Self.unit, seed: 4), to: "/file")
      var file = try container?.openFile("/file", .read)
      for piece in 0..<6 { _ = try file.map { try read($0, at: piece << 16, 1 << 16) } }
      switch i % 4 {
      case 0: file = nil
      case 1: try container?.close()
      case 2: container = nil
      default: try file?.close()
      }
      if i % 4 == 1 {
        #expect { _ = try read(#require(file), at: 6 << 16, 1 << 16) } throws: {
          ($0 as? ContainerError)?.code == .closed
        }
      }
    }
  }
}
