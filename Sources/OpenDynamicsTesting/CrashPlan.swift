import TestSupport

/// What a disk may hold after a crash at some place of a log.
///
/// The disk promises little: contents are certain once their file was synced, names (creations, renames, removals) once their
/// directory was. Until then each of them reaches the disk or not by itself and in any order, and of a write each sector or page.
package struct CrashPlan: Sendable, CustomStringConvertible {
  package enum Loss: Sendable, Equatable {
    /// Every operation before the crash reached the disk, as when only the process dies.
    case nothing
    /// Only what was synchronized did.
    case everythingUnsynchronized
    /// Of the names only what was synchronized: new files are missing, removed ones are back. Contents all did.
    case unsynchronizedNames
    /// All names did; of the contents only what was synchronized.
    case unsynchronizedContents
    /// All names and lengths did; contents that were not synchronized are zeros (delayed allocation).
    case zeros
    /// What was synchronized, and of the rest any subset, drawn with the seed.
    case some(seed: UInt64)
    /// Everything, but of the last write any subset of its 512-byte sectors, drawn with the seed.
    case tornLast(seed: UInt64)

    /// Those without a seed.
    package static let certain: [Loss] = [
      .nothing, .everythingUnsynchronized, .unsynchronizedNames, .unsynchronizedContents, .zeros,
    ]
  }

  /// The crash came after so many operations.
  package var operationCount: Int
  package var loss: Loss

  package init(operationCount: Int, loss: Loss) {
    self.operationCount = operationCount
    self.loss = loss
  }

  package var description: String { "crash after operation \(operationCount), \(loss)" }

  /// The disk that is found after the crash, beginning from `start` (all of which is durable).
  package func replay(_ log: [RecordingIO.Operation], from start: DiskImage = DiskImage()) -> DiskImage {
    var disk = LosingDisk(start, loss: loss)
    for change in Changes(log.prefix(operationCount), from: start).list { disk.apply(change) }
    return disk.image
  }

  /// The same for one file, by its name before the crash.
  func contents(of path: String, after log: [RecordingIO.Operation], from start: DiskImage) -> [UInt8]? {
    let changes = Changes(log.prefix(operationCount), from: start)
    var disk = LosingDisk(start, loss: loss)
    guard let file = changes.names[path] else { return nil }
    for change in changes.list where change.file == file { disk.apply(change) }
    return disk.contents[file] ?? []
  }
}

/// A log's operations as changes of numbered files and of names, each known to be durable or not.
private struct Changes {
  struct Change {
    enum Kind {
      case write(offset: Int, bytes: [UInt8])
      case truncate(Int)
      case punch(offset: Int, count: Int)
      case link(String)
      case unlink(String)
      case rename(String, to: String)
      case createDirectory(String)
      case removeDirectory(String)
    }

    var kind: Kind
    /// The file whose contents or name it changes; 0 for directories.
    var file = 0
    var isDurable = false
    var isLast = false
  }

  private(set) var list: [Change] = []
  private(set) var names: [String: Int]
  private var nextFile: Int
  /// Places in the list that the next sync of a file, or of a directory, makes durable.
  private var contentsUnderWay: [Int: [Int]] = [:]
  private var namesUnderWay: [String: [Int]] = [:]

  init(_ operations: ArraySlice<RecordingIO.Operation>, from start: DiskImage) {
    names = start.names
    nextFile = start.nextInode
    for operation in operations { add(operation) }
    // Torn is the last operation alone, if it is a write.
    if case .write = operations.last, !list.isEmpty { list[list.count - 1].isLast = true }
  }

  private mutating func add(_ operation: RecordingIO.Operation) {
    switch operation {
    case .create(let path):
      names[path] = nextFile
      addName(.link(path), path, file: nextFile)
      nextFile += 1
    case .write(let path, let offset, let bytes):
      addContents(.write(offset: Int(offset), bytes: bytes), path)
    case .truncate(let path, let size): addContents(.truncate(Int(size)), path)
    case .punch(let path, let offset, let count):
      addContents(.punch(offset: Int(offset), count: Int(count)), path)
    case .remove(let path):
      if let file = names.removeValue(forKey: path) { addName(.unlink(path), path, file: file) }
    case .rename(let path, let newPath):
      guard let file = names.removeValue(forKey: path) else { return }
      names[newPath] = file
      addName(.rename(path, to: newPath), newPath, file: file)
    case .createDirectory(let path): addName(.createDirectory(path), path)
    case .removeDirectory(let path): addName(.removeDirectory(path), path)
    case .synchronize(let path):
      guard let file = names[path] else { return }
      for i in contentsUnderWay.removeValue(forKey: file) ?? [] { list[i].isDurable = true }
    case .synchronizeDirectory(let path):
      for i in namesUnderWay.removeValue(forKey: path) ?? [] { list[i].isDurable = true }
    case .failed(.synchronize(let path)):
      // No later sync tries again.
      if let file = names[path] { contentsUnderWay[file] = nil }
    case .failed(.synchronizeDirectory(let path)): namesUnderWay[path] = nil
    case .failed: break
    }
  }

  private mutating func addContents(_ kind: Change.Kind, _ path: String) {
    guard let file = names[path] else { return }
    contentsUnderWay[file, default: []].append(list.count)
    list.append(Change(kind: kind, file: file))
  }

  private mutating func addName(_ kind: Change.Kind, _ path: String, file: Int = 0) {
    namesUnderWay[DiskImage.parent(path), default: []].append(list.count)
    list.append(Change(kind: kind, file: file))
  }
}

/// A disk that keeps what is durable and loses of the rest what the plan says.
private struct LosingDisk {
  private static let sectorByteCount = 512
  private static let pageByteCount = 4096

  private let start: DiskImage
  private let loss: CrashPlan.Loss
  private var random: SplitMix64
  private(set) var contents: [Int: [UInt8]]
  private var names: [String: Int]
  private var directories: Set<String>
  /// How many of four changes are kept, for each file's contents and (under -1) for names: some files are written back early and
  /// others late.
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

  mutating func apply(_ change: Changes.Change) {
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

  private mutating func keepsName(_ change: Changes.Change) -> Bool {
    switch loss {
    case _ where change.isDurable: true
    case .nothing, .unsynchronizedContents, .zeros, .tornLast: true
    case .everythingUnsynchronized, .unsynchronizedNames: false
    case .some: keeps(-1)
    }
  }

  private mutating func keepsContents(_ change: Changes.Change) -> Bool {
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

  private mutating func write(_ bytes: [UInt8], at offset: Int, _ change: Changes.Change) {
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

  /// Any subset of the aligned pieces, with the length that the whole would have had, or only as far as they reach.
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
