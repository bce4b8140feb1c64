import ContainerStore
import Dispatch
import EncryptedFile
import Locks
import OpenDynamicsTesting
import SodiumPrimitives
import TestSupport
import Testing

#if canImport(Glibc)
  import Glibc
#elseif canImport(Darwin)
  import Darwin
#endif

/// What many threads do to one container at once. Run under the thread sanitizer by Scripts/sanitize.
///
/// Files have contents that follow from one byte, so that a reader can tell a whole file from a mixture of two.
private func contents(_ version: UInt8) -> [UInt8] {
  [UInt8](repeating: version, count: 1 + (Int(version) * 7919) % 40_000)
}

/// Checkpoints, compactions and writings back come one after another, and not once in a megabyte.
private func busyOptions(_ durability: Container.Durability) -> Container.Options {
  var options = testOptions(durability)
  options.checkpointByteCounts = 12 << 10...12 << 10
  options.backgroundWasteByteCountMin = 64 << 10
  options.writeCacheByteCount = 8 * SegmentLayout.plaintextByteCountMax
  options.catalogCacheByteCount = 64 << 10
  return options
}

/// Files that one thread writes and no other does, and what they hold.
private struct WriterModel {
  let folder: String
  private var random: SplitMix64
  /// Nil: there is no such file.
  private(set) var files: [String: UInt8?] = [:]
  /// The change under way: whoever is interrupted does not know whether it happened.
  private(set) var doubtful: [String: UInt8?] = [:]

  init(folder: String, seed: UInt64) {
    self.folder = folder
    random = SplitMix64(seed: seed)
  }

  mutating func change(_ container: Container) throws {
    let path = folder + "/f\(random.next() % 12)"
    let version = UInt8(1 + random.next() % 255)
    let old = files[path] ?? nil
    switch random.next() % 6 {
    case 0 where old != nil:
      try attempt([path: nil]) { try container.remove(path) }
    case 1 where old != nil:
      let target = path + "-moved"
      try attempt([path: nil, target: old]) { try container.move(path, to: target, replacing: true) }
    case 2 where old != nil:
      let target = path + "-copy"
      if let there = files[target] ?? nil, there > 0 {
        try attempt([target: nil]) { try container.remove(target) }
      }
      try attempt([target: old]) { try container.copy(path, to: target) }
    default:
      try attempt([path: version]) { try container.write(contents(version), to: path) }
    }
  }

  private mutating func attempt(_ change: [String: UInt8?], _ body: () throws -> Void) throws {
    doubtful = change
    try body()
    files.merge(change) { $1 }
    doubtful = [:]
  }

  /// What is wrong with a container that has these files; nil when nothing is.
  func complaint(about container: Container) throws -> String? {
    let names = try container.list(folder).map { folder + "/" + $0.path }
    let found = try Dictionary(
      uniqueKeysWithValues: names.map { ($0, try container.contents(at: $0)) })
    func isHeld(_ expected: UInt8?, at path: String) -> Bool { found[path] == expected.map(contents) }
    for path in Set(names).union(files.keys).union(doubtful.keys) {
      let isKnown = isHeld(files[path] ?? nil, at: path)
      guard !isKnown else { continue }
      guard let change = doubtful[path], isHeld(change, at: path) else {
        return "\(path) holds \(found[path]?.first ?? 0), not \((files[path] ?? nil) ?? 0)"
      }
    }
    // A change of two names is whole or not there at all.
    if doubtful.count > 1 {
      let isDone = doubtful.allSatisfy { isHeld($1, at: $0) }
      let isUndone = doubtful.keys.allSatisfy { isHeld(files[$0] ?? nil, at: $0) }
      guard isDone || isUndone else { return "half of a change: \(doubtful)" }
    }
    return nil
  }
}

/// A container, and threads that use it in every way.
private final class Crowd: Sendable {
  static let writerCount = 3
  static let grain = SegmentLayout.plaintextByteCountMax

  let container: Container
  let models: [Guarded<WriterModel>]
  private let writersLeft = Guarded(Crowd.writerCount)
  let changeCount = Guarded(0)
  /// Somebody is about to close the container.
  let isClosing = Guarded(false)
  var isAtWork: Bool { writersLeft.withLock { $0 > 0 } }

  init(_ container: Container, seed: UInt64) throws {
    self.container = container
    models = (0..<Self.writerCount).map {
      Guarded(WriterModel(folder: "/w\($0)", seed: seed * 100 + UInt64($0)))
    }
    for i in 0..<Self.writerCount { try container.createDirectory("/w\(i)") }
    try container.write([UInt8](repeating: 1, count: 20 * Self.grain), to: "/shared")
  }

  private typealias Part = @Sendable (Crowd) throws -> String?

  /// Everything but the writers.
  private static let parts: [Part] = [
    { try $0.readPaths() }, { try $0.look() }, { try $0.useHandles(1) }, { try $0.useHandles(2) },
    { try $0.removeOpenFiles() }, { try $0.compact() }, { try $0.changeKeys() },
    { try $0.readPrivately() },
  ]
  static var threadCount: Int { writerCount + parts.count }

  /// The work of one of `threadCount` threads; ends with the writers. What is thrown otherwise than by closing is a complaint.
  func work(_ thread: Int, changeCount: Int) throws -> String? {
    do {
      guard thread < Self.writerCount else { return try Self.parts[thread - Self.writerCount](self) }
      defer { writersLeft.withLock { $0 -= 1 } }
      for _ in 0..<changeCount {
        try models[thread].withLock { try $0.change(container) }
        self.changeCount.withLock { $0 += 1 }
      }
    } catch let error as ContainerError where error.code == .closed && isClosing.withLock({ $0 }) {
      // Somebody closed it; nothing else may be thrown then.
    } catch {
      return "thread \(thread): \(error)"
    }
    return nil
  }

  private func readPaths() throws -> String? {
    var random = SplitMix64(seed: 77)
    while isAtWork {
      let path = "/w\(random.next() % UInt64(Self.writerCount))/f\(random.next() % 12)"
      do {
        let bytes = try container.contents(at: path)
        guard bytes == contents(bytes[0]) else { return "\(path) is a mixture" }
      } catch let error as ContainerError where error.code == .noSuchFile {}
    }
    return nil
  }

  private func look() throws -> String? {
    while isAtWork {
      for file in try container.list("/", recursively: true) where file.attributes.kind == .file {
        // A size that no version has would be one of a file half replaced.
        guard file.attributes.size > 0 || file.path.hasPrefix("gone") else { return "\(file.path) is empty" }
      }
      _ = try container.info()
      let findings = try container.verify().findings
      guard findings.isEmpty else { return "\(findings)" }
      try container.synchronize()
    }
    return nil
  }

  /// Each grain of the shared file holds one byte throughout: anything else is torn.
  private func useHandles(_ seed: UInt64) throws -> String? {
    var random = SplitMix64(seed: seed)
    while isAtWork {
      let file = try container.openFile("/shared", .readWrite)
      for _ in 0..<30 {
        let index = random.next() % 20
        if random.next() % 2 == 0 {
          let bytes = [UInt8](repeating: UInt8(random.next() % 256), count: Self.grain)
          try bytes.withUnsafeBytes { try file.write($0, at: index * UInt64(Self.grain)) }
        } else {
          var bytes = [UInt8](repeating: 0, count: Self.grain)
          let count = try bytes.withUnsafeMutableBytes {
            try file.read(at: index * UInt64(Self.grain), into: $0)
          }
          guard count == Self.grain, bytes.allSatisfy({ $0 == bytes[0] }) else { return "a torn grain" }
        }
      }
      try file.synchronize()
      try file.close()
    }
    return nil
  }

  /// Files that go on existing without a name.
  private func removeOpenFiles() throws -> String? {
    var round: UInt8 = 0
    while isAtWork {
      round &+= 1
      let file = try container.openFile("/gone", .readWrite, create: true)
      let bytes = [UInt8](repeating: round, count: 3 * Self.grain)
      try bytes.withUnsafeBytes { try file.write($0, at: 0) }
      if round % 2 == 0 { try file.synchronize() }
      try container.remove("/gone")
      try bytes.withUnsafeBytes { try file.write($0, at: UInt64(Self.grain)) }
      var read = [UInt8](repeating: 0, count: 4 * Self.grain)
      let count = try read.withUnsafeMutableBytes { try file.read(at: 0, into: $0) }
      guard count == read.count, read.allSatisfy({ $0 == round }) else { return "a removed file changed" }
      try file.close()
    }
    return nil
  }

  private func compact() throws -> String? {
    while isAtWork {
      let findings = try container.compact().findings
      guard findings.isEmpty else { return "\(findings)" }
      usleep(2000)
    }
    return nil
  }

  private func changeKeys() throws -> String? {
    while isAtWork {
      try container.addKey(testCredential(9))
      guard try container.removeKey(testCredential(9)) == 1 else { return "a key was lost" }
      usleep(20_000)
    }
    return nil
  }

  /// Handles of one thread: what it wrote last is what it reads, whatever the others do.
  private func readPrivately() throws -> String? {
    try container.write([], to: "/gone-private")
    let file = try container.openFile("/gone-private", .readWrite)
    var model: [UInt8] = []
    var random = SplitMix64(seed: 5)
    while isAtWork {
      let offset = Int(random.next() % 60_000)
      let bytes = [UInt8](repeating: UInt8(random.next() % 256), count: 1 + Int(random.next() % 9000))
      if model.count < offset + bytes.count {
        model += [UInt8](repeating: 0, count: offset + bytes.count - model.count)
      }
      model.replaceSubrange(offset..<(offset + bytes.count), with: bytes)
      try bytes.withUnsafeBytes { try file.write($0, at: UInt64(offset)) }
      if random.next() % 8 == 0 {
        model = Array(model.prefix(offset))
        try file.truncate(to: UInt64(offset))
      }
      if random.next() % 3 == 0 {
        guard try container.contents(at: "/gone-private") == model else { return "the path reads otherwise" }
      }
      var read = [UInt8](repeating: 0xaa, count: model.count + 10)
      let count = try read.withUnsafeMutableBytes { try file.read(at: 0, into: $0) }
      guard count == model.count, read.prefix(count).elementsEqual(model) else {
        return "the handle reads otherwise"
      }
    }
    try file.close()
    return nil
  }
}

private enum Disk: CaseIterable, Sendable {
  case memory, files
}

/// The same key each time; the directory, if any, has to outlive the container.
private struct Home: Sendable {
  let directory = TemporaryDirectory()
  let memory = RecordingIO()
  let disk: Disk
  var place: String { directory.path + "/container" }

  init(_ disk: Disk) { self.disk = disk }

  /// Bytes of blocks that the slabs take on the real file system.
  var slabByteCount: Int {
    guard let stream = opendir(place + "/slab") else { return 0 }
    defer { closedir(stream) }
    var sum = 0
    while let entry = readdir(stream) {
      let name = withUnsafeBytes(of: &entry.pointee.d_name) {
        String(decoding: $0.prefix { $0 != 0 }, as: UTF8.self)
      }
      var status = stat()
      if name.count == 8, stat(place + "/slab/" + name, &status) == 0 { sum += Int(status.st_blocks) * 512 }
    }
    return sum
  }

  func create(_ options: Container.Options, key: UInt8 = 7) throws -> Container {
    switch disk {
    case .memory: try Container.create(io: memory, credential: testCredential(key), options: options)
    case .files: try Container.create(at: place, credential: testCredential(key), options: options)
    }
  }

  func open(_ mode: Container.Mode = .readWrite, key: UInt8 = 7) throws -> Container {
    let options = testOptions()
    return switch disk {
    case .memory:
      try Container.open(io: memory, credential: testCredential(key), mode: mode, options: options)
    case .files: try Container.open(at: place, credential: testCredential(key), mode: mode, options: options)
    }
  }
}

@Suite(.serialized) struct ConcurrencyTests {
  @Test(arguments: Disk.allCases, [Container.Durability.grouped, .full])
  fileprivate func everythingAtOnceKeepsWhatWasAcknowledged(
    disk: Disk, durability: Container.Durability
  ) throws {
    let home = Home(disk)
    let container = try home.create(busyOptions(durability))
    let crowd = try Crowd(container, seed: 1)
    let complaints = inThreads(Crowd.threadCount) { thread in
      try crowd.work(thread, changeCount: durability == .full ? 30 : 60)
    }
    #expect(complaints == [])
    for model in crowd.models {
      #expect(try model.withLock { try $0.complaint(about: container) } == nil)
    }
    // One may be under way, or wait for its turn, on a busy machine.
    var patience = 500
    while try container.info().generation <= 2, patience > 0 {
      patience -= 1
      try container.write([1], to: "/one more")
      usleep(20_000)
    }
    #expect(try container.info().generation > 2, "no checkpoint was taken")
    #expect(try container.verify().findings == [])
    try container.close()
    let reopened = try home.open()
    #expect(reopened.findings == [])
    for model in crowd.models {
      #expect(try model.withLock { try $0.complaint(about: reopened) } == nil)
    }
    #expect(try reopened.verify().findings == [])
  }

  /// Every call either succeeds or throws `closed`, and who is told that the container is closed can open it.
  @Test(arguments: Disk.allCases, 0..<4)
  fileprivate func closingInTheMiddleOfEverything(disk: Disk, round: Int) throws {
    let home = Home(disk)
    let container = try home.create(busyOptions(round % 2 == 0 ? .grouped : .full))
    let crowd = try Crowd(container, seed: UInt64(2 + round))
    let opened = Guarded<Container?>(nil)
    let complaints = inThreads(Crowd.threadCount + 2) { thread in
      guard thread >= Crowd.threadCount else {
        let complaint = try crowd.work(thread, changeCount: 100_000)
        if thread < Crowd.writerCount, !crowd.isClosing.withLock({ $0 }) {
          return complaint ?? "never closed"
        }
        return complaint
      }
      while crowd.changeCount.withLock({ $0 }) < 10 + round * 20 { usleep(500) }
      crowd.isClosing.withLock { $0 = true }
      try container.close()
      // Of the two that close it, either one can open it; the second to try finds it open.
      return try opened.withLock { opened in
        guard opened == nil else { return nil }
        let next = try home.open()
        opened = next
        guard next.findings.isEmpty else { return "findings: \(next.findings)" }
        let findings = try next.verify().findings
        return findings.isEmpty ? nil : "\(findings)"
      }
    }
    #expect(complaints == [])
    let reopened = try #require(opened.withLock { $0 })
    for model in crowd.models {
      #expect(try model.withLock { try $0.complaint(about: reopened) } == nil)
    }
    #expect(try reopened.verify().findings == [])
  }

  @Test(arguments: Disk.allCases)
  fileprivate func containersSendToEachOtherWhileTheyAreUsed(disk: Disk) throws {
    let homes = [Home(disk), Home(disk)]
    let containers = try homes.enumerated().map {
      try $1.create(busyOptions($0 == 0 ? .grouped : .full), key: UInt8(7 + $0))
    }
    for (i, container) in containers.enumerated() {
      try container.createDirectory("/Documents")
      for j in 0..<6 { try container.write(contents(UInt8(10 * i + j + 1)), to: "/Documents/f\(j)") }
      try container.write(testBytes(3 << 20, seed: UInt64(i)), to: "/Documents/large")
    }
    let rounds = 4
    let sendersLeft = Guarded(4)
    let complaints = inThreads(8) { thread in
      let (own, other) = (containers[thread % 2], containers[1 - thread % 2])
      switch thread {
      case 0..<4:
        defer { sendersLeft.withLock { $0 -= 1 } }
        for _ in 0..<rounds {
          let receipt = try own.send(["/Documents"], to: other, sender: "app\(thread)")
          guard receipt.files.count == 7 else { return "\(receipt.files.count) files arrived" }
          for file in receipt.files {
            guard try other.contents(at: file.path) == own.contents(at: file.originalPath) else {
              return "\(file.path) arrived otherwise"
            }
          }
          try other.remove(receipt.directory)
        }
      case 4, 5:
        while sendersLeft.withLock({ $0 > 0 }) {
          _ = try own.compact()
          let findings = try own.verify().findings
          guard findings.isEmpty else { return "\(findings)" }
        }
      default:
        let file = try own.openFile("/log", .readWrite, create: true)
        while sendersLeft.withLock({ $0 > 0 }) {
          try contents(200).withUnsafeBytes { _ = try file.append($0) }
          if file.size > 1 << 20 { try file.truncate(to: 0) }
        }
        try file.close()
      }
      return nil
    }
    #expect(complaints == [])
    for (i, container) in containers.enumerated() {
      #expect(try container.verify().findings == [])
      try container.close()
      #expect(try homes[i].open(.readOnly, key: UInt8(7 + i)).verify().hasDamage == false)
    }
  }

  /// Readers that opened at some moment see that moment as long as they like, and keep no space when they are gone.
  @Test func readersKeepTheStateOfTheirOpening() throws {
    let home = Home(.files)
    let container = try home.create(busyOptions(.grouped))
    let crowd = try Crowd(container, seed: 9)
    for i in 0..<40 { try container.write(testBytes(60_000, seed: UInt64(i)), to: "/w0/kept\(i)") }
    let complaints = inThreads(Crowd.writerCount + 3) { thread in
      if thread < Crowd.writerCount {
        let complaint = try crowd.work(thread, changeCount: 80)
        if thread == 0 {
          for i in 0..<40 { try container.remove("/w0/kept\(i)") }
          _ = try container.compact()
        }
        return complaint
      }
      repeat {
        let reader = try home.open(.readOnly)
        let first = try reader.tree()
        for _ in 0..<3 {
          usleep(20_000)
          guard try reader.tree() == first else { return "the state of a reader changed" }
        }
        guard try !reader.verify().hasDamage else { return "\(try reader.verify().findings)" }
        try reader.close()
      } while crowd.isAtWork
      return nil
    }
    #expect(complaints == [])
    try container.remove("/w0")
    try container.remove("/w1")
    try container.remove("/w2")
    try container.compact()
    // What is left: the shared file of 20 grains, and the ends of pages.
    let left = home.slabByteCount
    #expect(left < Crowd.grain * 20 + (256 << 10), "\(left) bytes are still held")
    try container.close()
    #expect(try home.open(.readOnly).verify().hasDamage == false)
  }

  @Test func readersAreLeftAloneWhenEverythingTheyReadIsRewritten() throws {
    let home = Home(.files)
    let container = try home.create(busyOptions(.full))
    try container.createDirectory("/d")
    for i in 0..<30 { try container.write(testBytes(50_000, seed: UInt64(i)), to: "/d/f\(i)") }
    let before = try container.tree()
    let readers = try (0..<2).map { _ in try home.open(.readOnly) }
    for round in 0..<3 {
      for i in 0..<30 { try container.write(contents(UInt8(round * 30 + i + 1)), to: "/d/f\(i)") }
      try container.compact()
    }
    let generation = try container.info().generation
    #expect(generation > 3, "no checkpoint was taken")
    let second = try home.open(.readOnly)
    let between = try container.tree()
    try container.remove("/d")
    try container.compact()
    let held = home.slabByteCount
    for reader in readers {
      #expect(try reader.tree() == before)
      #expect(try reader.verify().hasDamage == false)
    }
    #expect(try second.tree() == between)
    for reader in readers { try reader.close() }
    #expect(try second.tree() == between)
    try second.close()
    try container.write([1], to: "/last")
    try container.compact()
    let left = home.slabByteCount
    #expect(held > 1 << 20, "the readers held \(held) bytes")
    #expect(left < 128 << 10, "\(left) bytes are still held")
    try container.close()
    #expect(try home.open().tree() == ["/last": [1]])
  }
}
