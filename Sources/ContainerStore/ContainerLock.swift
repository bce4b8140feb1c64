import EncryptedFile
import SodiumPrimitives

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

/// Who may write and who reads (CONTAINER-FORMAT.md, "Locks and readers' pins").
enum ContainerLock {
  /// The writer's lock, or the pin that keeps everything while a reader reads the state. Throws `locked`: at once when this process
  /// holds the lock, else after 255 ms.
  ///
  /// A lock belongs to an open file description, and a child has its parent's until it calls exec(2): the lock of a process that
  /// was killed may live that much longer.
  static func take(_ io: any BlockIO, mode: Container.Mode) throws -> any BlockFile {
    let file = try open(io, mode: mode)
    var milliseconds: UInt32 = 1
    while true {
      let isGranted =
        switch mode {
        case .readWrite: try file.tryLock(.writer, exclusive: true)
        case .readOnly: try file.tryLock(.entry, exclusive: false)
        }
      if isGranted { return file }
      let refusal = try locked(file, at: io.place)
      guard refusal.circumstance != .ownLock, milliseconds <= 128 else { throw refusal }
      usleep(milliseconds * 1000)
      milliseconds *= 2
    }
  }

  private static func open(_ io: any BlockIO, mode: Container.Mode) throws -> any BlockFile {
    do throws(IOFailure) {
      return try io.open("lock", mode == .readWrite ? .readWrite : .read)
    } catch {
      // A container whose lock file was lost, for instance by a copy that left it out.
      guard error.errno == missingFile else { throw error }
    }
    do throws(IOFailure) {
      return try io.open("lock", .createNew)
    } catch {
      guard mode == .readOnly, refusedAccess.contains(error.errno) else { throw error }
      // Nobody writes where no lock can be made; locks on another file keep nobody from anything.
      return try io.open(Superblock.name, .read)
    }
  }

  /// Exchanges the pin of everything for that of one commit.
  static func pin(_ commit: UInt64, _ file: any BlockFile) throws {
    _ = try file.tryLock(.pin(commit), exclusive: false)
    file.unlock(.entry)
  }

  static func describeHolder(_ file: any BlockFile) throws {
    try file.truncate(to: 0)
    try file.write(Array(ownDescription().utf8), at: 0)
  }

  private static func ownDescription() -> String {
    "pid \(getpid())\nhost \(hostName())\nboot \(bootID())\n"
  }

  private static func locked(_ file: any BlockFile, at place: String) throws -> ContainerError {
    let text = String(decoding: try file.read(1024, at: 0), as: UTF8.self)
    let isOwn = text == ownDescription()
    return ContainerError(
      .locked, path: place, detail: holder(text), circumstance: isOwn ? .ownLock : .usual)
  }

  /// "process 1234 on host", as far as the lock file says.
  private static func holder(_ text: String) -> String? {
    var fields: [Substring: Substring] = [:]
    for line in text.split(separator: "\n") {
      let parts = line.split(separator: " ", maxSplits: 1)
      if parts.count == 2 { fields[parts[0]] = parts[1] }
    }
    guard let pid = fields["pid"] else { return nil }
    return "process \(pid)" + (fields["host"].map { " on \($0)" } ?? "")
  }

  static func hostName() -> String {
    withUnsafeTemporaryAllocation(of: CChar.self, capacity: 256) { buffer in
      buffer.initialize(repeating: 0)
      guard gethostname(buffer.baseAddress!, 255) == 0 else { return "unknown" }
      return String(cString: buffer.baseAddress!)
    }
  }

  static func bootID() -> String {
    guard let file = fopen("/proc/sys/kernel/random/boot_id", "r") else { return "unknown" }
    defer { fclose(file) }
    return withUnsafeTemporaryAllocation(of: CChar.self, capacity: 64) { buffer in
      buffer.initialize(repeating: 0)
      guard fgets(buffer.baseAddress!, 64, file) != nil else { return "unknown" }
      return String(String(cString: buffer.baseAddress!).prefix { $0 != "\n" })
    }
  }
}

/// Finding and choosing the superblock's slots.
enum Superblock {
  static let name = "superblock"
  static let unfinishedName = "superblock.new"

  /// Writes the first superblock, as the last step of making a container. The file gets its name when both slots are durable: a
  /// directory without a superblock is not a container.
  static func writeFirst(_ bytes: [UInt8], to io: any BlockIO) throws(IOFailure) {
    let file = try io.open(unfinishedName, .createNew)
    for offset in SuperblockSlot.offsets { try file.write(bytes, at: offset) }
    try file.synchronize()
    // Names become durable in any order: those of the other files have to before the superblock's.
    try io.synchronizeDirectory("")
    try io.rename(unfinishedName, to: name)
    try io.synchronizeDirectory("")
  }

  static func file(of io: any BlockIO) throws -> any BlockFile {
    do throws(IOFailure) {
      return try io.open(name, .read)
    } catch {
      if absentFile.contains(error.errno) {
        throw ContainerError(.notAContainer, path: io.place, circumstance: io.isThere ? .usual : .missing)
      }
      throw error
    }
  }

  static func read(_ file: any BlockFile) throws(IOFailure) -> [SuperblockSlot.Reading] {
    var readings: [SuperblockSlot.Reading] = []
    for offset in SuperblockSlot.offsets {
      let bytes = try file.read(SuperblockSlot.byteCount, at: offset)
      let isCut = bytes.count < SuperblockSlot.byteCount && bytes.starts(with: SuperblockSlot.magic)
      readings.append(isCut ? .torn : SuperblockSlot.read(bytes))
    }
    return readings
  }

  /// The slot to use, before any key is tried, and what is wrong with the other. While a writer lives, what was read may be an
  /// update half done, and is read again.
  static func choose(
    _ file: any BlockFile, writerIsAlive: Bool
  ) throws -> (SuperblockSlot, [Finding]) {
    var attempts = writerIsAlive ? 100 : 1
    while true {
      attempts -= 1
      do {
        let (slot, findings) = try choose(try read(file))
        if findings.isEmpty || attempts <= 0 { return (slot, findings) }
      } catch  where attempts > 0 {
        usleep(1000)
        continue
      }
      usleep(1000)
    }
  }

  private static func choose(_ readings: [SuperblockSlot.Reading]) throws -> (SuperblockSlot, [Finding]) {
    for case .unsupported(let version, let minimum) in readings {
      throw ContainerError(
        .unsupportedFormat,
        detail: "format \(version), for readers of format \(minimum) or later; this one reads 3")
    }
    for case .malformed(let what) in readings { throw ContainerError(.superblockAltered, detail: what) }
    let good = readings.compactMap { reading -> SuperblockSlot? in
      if case .good(let slot) = reading { slot } else { nil }
    }
    switch good.count {
    case 2:
      let newer = good[0].sequence >= good[1].sequence ? good[0] : good[1]
      let older = good[0].sequence >= good[1].sequence ? good[1] : good[0]
      guard good[0].sequence != good[1].sequence || good[0] == good[1] else {
        throw ContainerError(.superblockAltered, detail: "two copies of one number differ")
      }
      guard newer.containerID == older.containerID else {
        throw ContainerError(.superblockAltered, detail: "the copies belong to different containers")
      }
      if newer.sequence == older.sequence { return (newer, []) }
      let isOneBehind = newer.sequence == older.sequence + 1
      return (
        newer,
        [
          Finding(
            isOneBehind ? .note : .damage, .superblockSlotOutdated,
            "one copy of the superblock is \(newer.sequence - older.sequence) updates behind the other; "
              + "opening it for writing writes both")
        ]
      )
    case 1:
      return (
        good[0],
        [
          Finding(
            .damage, .superblockSlotTorn,
            "one copy of the superblock is torn or overwritten; opening it for writing writes both")
        ]
      )
    default:
      let isForeign = readings.allSatisfy { if case .foreign = $0 { true } else { false } }
      throw ContainerError(isForeign ? .notAContainer : .superblockTorn)
    }
  }

  static func rootKey(
    _ slot: SuperblockSlot, credential: borrowing Credential, options: Container.Options,
    cipher: SecretStreamCipher
  ) throws -> SecretBytes {
    if credential.kind == .passphrase {
      try KeySlot.checkCosts(of: slot.keySlots, memoryKiBMax: options.passwordHashMemoryKiBMax)
    }
    for keySlot in slot.keySlots {
      if let key = try keySlot?.open(credential, containerID: slot.containerID, cipher: cipher) { return key }
    }
    throw ContainerError(.wrongKey)
  }
}

/// Recovery by a writer after an unclean end, except for replaying the journals. A missing file does not prevent opening: reading
/// reports it as damage.
enum Recovery {
  /// So that what is accepted is what the disk has, and not what a failed write left in memory.
  static func dropCaches(_ io: any BlockIO) throws {
    for directory in ["journal", CopiedFile.copyFolder, "slab"] {
      for name in try io.fileNames(in: directory) {
        try io.openIfThere(directory + "/" + name, .read)?.dropCache()
      }
    }
  }

  /// Makes the copies of a journal equal again, where a crash left a record in one of them alone.
  static func level(_ io: any BlockIO, _ records: [UnevenRecord]) throws(IOFailure) {
    for record in records {
      let bytes = try io.open(record.whole, .read).read(record.range.count, at: record.range.lowerBound)
      try io.openIfThere(record.torn, .readWrite)?.write(bytes, at: record.range.lowerBound)
    }
  }

  static func synchronize(_ io: any BlockIO, journals: [Identifier], slabs: Set<UInt32>) throws(IOFailure) {
    for name in slabs.sorted().map(SlabStore.name) + journals.flatMap({ CopiedFile.names($0, in: .journal) })
    {
      try io.openIfThere(name, .readWrite)?.synchronize()
    }
    if !slabs.isEmpty { try io.synchronizeDirectory("slab") }
  }
}
