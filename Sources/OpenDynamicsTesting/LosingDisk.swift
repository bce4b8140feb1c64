import TestSupport

/// A disk that keeps what is durable and loses of the rest what the plan says.
struct LosingDisk {
  private static let sectorByteCount = 512
  private static let pageByteCount = 4096

  private let start: DiskImage
  private let loss: CrashPlan.Loss
  private var random: SplitMix64
  private(set) var contents: [Int: [UInt8]]
  private var names: [String: Int]
  private var directories: Set<String>
  /// How many of four changes are kept, for each file's contents and (under -1) for names: some
  /// files are written back early and others late.
  private var keptOfFour: [Int: Int] = [:]

  init(_ start: DiskImage, loss: CrashPlan.Loss) {
    self.start = start
    self.loss = loss
    contents = start.contents
    names = start.names
    directories = start.directories
    random =
      switch loss {
      case .some(let seed), .tornLast(let seed): SplitMix64(seed: seed)
      default: SplitMix64(seed: 0)
      }
  }

  var image: DiskImage {
    let files = (names.values.max() ?? 0) + 1
    var contents = contents
    for file in names.values where contents[file] == nil { contents[file] = [] }
    return DiskImage(
      directories: directories, names: names, contents: contents, nextInode: max(start.nextInode, files))
  }

  mutating func apply(_ change: DiskChanges.Change) {
    switch change.kind {
    case .write(let offset, let bytes): write(bytes, at: offset, change)
    case .truncate(let size): if keepsContents(change) { DiskImage.resize(&self[change.file], to: size) }
    case .punch(let offset, let count):
      if keepsContents(change) { DiskImage.punch(&self[change.file], offset: offset, count: count) }
    case .link(let path): if keepsName(change) { names[path] = change.file }
    case .unlink(let path): if keepsName(change), names[path] == change.file { names[path] = nil }
    case .rename(let path, let newPath):
      guard keepsName(change) else { return }
      if names[path] == change.file { names[path] = nil }
      names[newPath] = change.file
    case .createDirectory(let path): if keepsName(change) { directories.insert(path) }
    case .removeDirectory(let path): if keepsName(change) { directories.remove(path) }
    }
  }

  private subscript(file: Int) -> [UInt8] {
    get { contents[file] ?? [] }
    _modify { yield &contents[file, default: []] }
  }

  private mutating func keepsName(_ change: DiskChanges.Change) -> Bool {
    switch loss {
    case _ where change.isDurable: true
    case .nothing, .unsynchronizedContents, .zeros, .tornLast: true
    case .everythingUnsynchronized, .unsynchronizedNames: false
    case .some: keeps(-1)
    }
  }

  private mutating func keepsContents(_ change: DiskChanges.Change) -> Bool {
    switch loss {
    case _ where change.isDurable: true
    case .nothing, .unsynchronizedNames, .zeros, .tornLast: true
    case .everythingUnsynchronized, .unsynchronizedContents: false
    case .some: keeps(change.file)
    }
  }

  private mutating func keeps(_ file: Int) -> Bool {
    let kept = keptOfFour[file] ?? [0, 1, 2, 3, 4].randomElement(using: &random)!
    keptOfFour[file] = kept
    return Int.random(in: 0..<4, using: &random) < kept
  }

  private mutating func write(_ bytes: [UInt8], at offset: Int, _ change: DiskChanges.Change) {
    let end = offset + bytes.count
    if change.isDurable {
      DiskImage.write(bytes, at: offset, to: &self[change.file])
      return
    }
    switch loss {
    case .nothing, .unsynchronizedNames: DiskImage.write(bytes, at: offset, to: &self[change.file])
    case .everythingUnsynchronized, .unsynchronizedContents: break
    case .zeros: lengthen(change.file, to: end)
    case .tornLast:
      if change.isLast {
        write(partsOf: bytes, at: offset, grain: Self.sectorByteCount, to: change.file)
      } else {
        DiskImage.write(bytes, at: offset, to: &self[change.file])
      }
    case .some:
      switch Int.random(in: 0..<4, using: &random) {
      case 0: write(partsOf: bytes, at: offset, grain: Self.pageByteCount, to: change.file)
      case 1 where keeps(change.file): lengthen(change.file, to: end)
      default: if keeps(change.file) { DiskImage.write(bytes, at: offset, to: &self[change.file]) }
      }
    }
  }

  private mutating func lengthen(_ file: Int, to size: Int) {
    if self[file].count < size { DiskImage.resize(&self[file], to: size) }
  }

  /// Any subset of the aligned pieces, with the length that the whole would have had, or only as
  /// far as they reach.
  private mutating func write(partsOf bytes: [UInt8], at offset: Int, grain: Int, to file: Int) {
    if Bool.random(using: &random) { lengthen(file, to: offset + bytes.count) }
    var begin = 0
    while begin < bytes.count {
      let end = min(bytes.count, begin + grain - (offset + begin) % grain)
      if Bool.random(using: &random) {
        DiskImage.write(Array(bytes[begin..<end]), at: offset + begin, to: &self[file])
      }
      begin = end
    }
  }
}
