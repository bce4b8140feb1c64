import EncryptedFile
import SodiumPrimitives
import Synchronization

/// How far a bulk operation is.
public struct BulkProgress: Sendable, Equatable {
  /// Plaintext bytes that are through.
  public var bytesDone: UInt64
  public var byteCount: UInt64
  /// Files of which every byte is through.
  public var filesDone: Int
  public var fileCount: Int
  /// Since the beginning.
  public var seconds: Double

  public var isFinished: Bool { filesDone == fileCount && bytesDone == byteCount }
  public var bytesPerSecond: Double { seconds > 0 ? Double(bytesDone) / seconds : 0 }
}

/// Ends a bulk operation from any thread.
public final class Cancellation: Sendable {
  private let flag = Atomic<Bool>(false)

  public init() {}

  public func cancel() { flag.store(true, ordering: .relaxed) }
  public var isCancelled: Bool { flag.load(ordering: .relaxed) }
}

/// What a caller may give to every bulk operation.
public struct BulkControl {
  /// Called on the calling thread, at most some twenty times a second, and once at the end.
  public var progress: ((BulkProgress) -> Void)?
  public var cancellation: Cancellation?
  /// Takes an error for each file and directory below an exported one that is left out because it is damaged; everything else is
  /// exported. Called on the calling thread. Nil: the first damage ends the export, and nothing of it is left.
  public var skipping: ((ContainerError) -> Void)?

  public init(
    progress: ((BulkProgress) -> Void)? = nil, cancellation: Cancellation? = nil,
    skipping: ((ContainerError) -> Void)? = nil
  ) {
    self.progress = progress
    self.cancellation = cancellation
    self.skipping = skipping
  }
}

/// A part of a file that one thread handles in one go.
struct Piece: Sendable {
  /// Position in the job's list of files.
  var file: Int
  /// Index of the first grain.
  var start: UInt64
  /// Plaintext bytes.
  var byteCount: Int
  /// Where the sealed bytes are; nil when the piece comes from outside.
  var source: Extent?
}

/// Cuts files into pieces and packs the pieces into units of at most 1 MiB: large files are spread over the threads, and many
/// small ones share a write.
struct UnitPlan {
  private(set) var units: [[Piece]] = []
  private(set) var byteCount: UInt64 = 0
  private(set) var piecesPerFile: [Int] = []
  private var segmentsInLast = 0

  /// Adds a file whose contents come from outside.
  mutating func addFile(byteCount: UInt64) {
    beginFile()
    let unit = SegmentLayout.segmentsPerUnit * SegmentLayout.plaintextByteCountMax
    var done: UInt64 = 0
    while done < byteCount {
      let count = Int(min(byteCount - done, UInt64(unit)))
      add(
        Piece(
          file: piecesPerFile.count - 1, start: done / UInt64(SegmentLayout.plaintextByteCountMax),
          byteCount: count),
        segments: Int(SegmentLayout.segmentCount(UInt64(count))))
      done += UInt64(count)
    }
  }

  /// Adds a file that is sealed already. Returns the number of its pieces.
  @discardableResult
  mutating func addFile(extents: [Extent]) -> Int {
    beginFile()
    for extent in extents {
      var skipped = 0
      while skipped < extent.count {
        let run = extent.slice(
          skipping: skipped, count: min(Int(extent.count) - skipped, SegmentLayout.segmentsPerUnit))
        add(
          Piece(
            file: piecesPerFile.count - 1, start: run.start, byteCount: run.plaintextByteCount, source: run),
          segments: Int(run.count))
        skipped += Int(run.count)
      }
    }
    return piecesPerFile[piecesPerFile.count - 1]
  }

  private mutating func beginFile() { piecesPerFile.append(0) }

  private mutating func add(_ piece: Piece, segments: Int) {
    if units.isEmpty || segmentsInLast + segments > SegmentLayout.segmentsPerUnit {
      units.append([])
      segmentsInLast = 0
    }
    units[units.count - 1].append(piece)
    segmentsInLast += segments
    byteCount += UInt64(piece.byteCount)
    piecesPerFile[piece.file] += 1
  }
}

/// A run of a new file, sealed and stored.
struct StoredRun: Sendable {
  var file: Int
  var extent: Extent
}

/// The runs of a job's files, each file's in order of their starts. All files share one array, because there may be millions.
struct FileRuns: Sendable {
  /// All runs, in order of files and then of starts.
  let extents: [Extent]
  /// The end index of each file's runs in `extents`.
  private let ends: [Int]

  fileprivate init(_ stored: consuming [StoredRun], fileCount: Int) {
    stored.sort { ($0.file, $0.extent.start) < ($1.file, $1.extent.start) }
    extents = stored.map(\.extent)
    var ends = [Int](repeating: 0, count: fileCount)
    for run in stored { ends[run.file] += 1 }
    var end = 0
    for i in ends.indices {
      end += ends[i]
      ends[i] = end
    }
    self.ends = ends
  }

  subscript(file: Int) -> [Extent] { Array(extents[(file == 0 ? 0 : ends[file - 1])..<ends[file]]) }
}

/// Runs a plan's units on a container's threads, with progress and cancellation.
struct BulkWork {
  let plan: UnitPlan
  let control: BulkControl
  let workers: WorkerThreads
  /// Where the units are stored; nil when nothing is.
  var slabs: SlabStore?

  private struct Tally {
    var bytesDone: UInt64 = 0
    var filesDone: Int
    var piecesLeft: [Int]
    var stored: [StoredRun] = []
  }

  /// Calls `body` for every unit. When anything fails, or the job is cancelled, what was stored so far is given back before the
  /// error is thrown. Returns the runs of each file in order of their starts.
  func run(_ body: @escaping @Sendable (WorkerContext, [Piece]) throws -> [StoredRun]) throws -> FileRuns {
    let begin = Clock.monotonicNanoseconds()
    let tally = Guarded(
      Tally(filesDone: plan.piecesPerFile.count { $0 == 0 }, piecesLeft: plan.piecesPerFile))
    let report = {
      guard let progress = control.progress else { return }
      let (bytes, files) = tally.withLock { ($0.bytesDone, $0.filesDone) }
      progress(
        BulkProgress(
          bytesDone: bytes, byteCount: plan.byteCount, filesDone: files, fileCount: plan.piecesPerFile.count,
          seconds: Double(Clock.monotonicNanoseconds() - begin) / 1e9))
    }
    let poll = {
      if control.cancellation?.isCancelled == true { throw ContainerError(.cancelled) }
      report()
    }
    let units = plan.units
    slabs?.expect(plan.byteCount)
    defer { slabs?.endExpecting(plan.byteCount) }
    do {
      try poll()
      try workers.forEach(units.count, poll: poll) { context, index in
        let stored = try body(context, units[index])
        tally.withLock { tally in
          tally.stored += stored
          for piece in units[index] {
            tally.bytesDone += UInt64(piece.byteCount)
            tally.piecesLeft[piece.file] -= 1
            if tally.piecesLeft[piece.file] == 0 { tally.filesDone += 1 }
          }
        }
      }
      if control.cancellation?.isCancelled == true { throw ContainerError(.cancelled) }
    } catch {
      slabs?.discard(tally.withLock { $0.stored.map(\.extent) })
      throw error
    }
    report()
    let stored = tally.withLock { tally in
      defer { tally.stored = [] }
      return tally.stored
    }
    return FileRuns(stored, fileCount: plan.piecesPerFile.count)
  }
}

/// A file that a bulk operation makes in a container: its identity before its contents are there.
struct NewFile: Sendable {
  var id: UInt64
  var secret: [UInt8]
}

/// Identities of many new files, which are numbered one after the other.
struct NewFiles: Sendable {
  fileprivate let first: UInt64
  /// The secrets of all files, concatenated.
  fileprivate let secrets: [UInt8]

  subscript(file: Int) -> NewFile {
    let begin = file * Inode.secretByteCount
    return NewFile(
      id: first + UInt64(file), secret: Array(secrets[begin..<(begin + Inode.secretByteCount)]))
  }
}

extension Container {
  /// Identities for so many new files.
  func makeFiles(_ count: Int) -> NewFiles {
    NewFiles(first: takeFileIDs(count), secrets: Random.bytes(count * Inode.secretByteCount))
  }

  /// Seals the pieces of a unit that `fill` puts into a buffer, and stores them with one write.
  func sealUnit(
    _ pieces: [Piece], of files: NewFiles, context: WorkerContext,
    fill: (Piece, UnsafeMutableRawBufferPointer) throws -> Void
  ) throws -> [StoredRun] {
    try storeUnit(pieces, context: context) { piece, output in
      let plaintext = UnsafeMutableRawBufferPointer(rebasing: context.input[0..<piece.byteCount])
      try fill(piece, plaintext)
      let file = files[piece.file]
      let key = try keys.fileKey(file.id, epoch: epoch, secret: file.secret)
      let number = session.take(Int(SegmentLayout.segmentCount(UInt64(piece.byteCount))))
      context.cipher.seal(
        UnsafeRawBufferPointer(plaintext), key: key, writerKey: try key.writerKey(session: number.session),
        index: piece.start, counter: number.counter, into: output)
      return number
    }
  }

  /// Opens the pieces of a unit from `source` and seals them at once for this container (see `SegmentCipher.reseal`).
  func resealUnit(
    _ pieces: [Piece], from source: Container, sources: [FoundFile], paths: [String], of files: NewFiles,
    checkInterval: Int, context: WorkerContext
  ) throws -> [StoredRun] {
    try storeUnit(pieces, context: context) { piece, output in
      let run = piece.source!  // planned from extents
      let from = sources[piece.file]
      let to = files[piece.file]
      let stored = UnsafeMutableRawBufferPointer(rebasing: context.input[0..<run.storedByteCount])
      let number = session.take(Int(run.count))
      try source.namingPath(paths[piece.file]) {
        let count = try source.slabs.read(run.slab, run.offset, into: stored)
        let fromKey = try source.fileKey(from.id, from.inode)
        let toKey = try keys.fileKey(to.id, epoch: epoch, secret: to.secret)
        try context.cipher.reseal(
          run: run, stored: UnsafeRawBufferPointer(rebasing: stored[0..<count]),
          key: try fromKey.writerKey(session: run.writeNumber.session),
          to: SegmentCipher.Target(counter: number.counter, checkInterval: checkInterval),
          targetKey: toKey, targetWriterKey: try toKey.writerKey(session: number.session), into: output)
      }
      return number
    }
  }

  /// Lets `seal` put each piece's sealed bytes behind one another, and appends them to a slab with one write.
  private func storeUnit(
    _ pieces: [Piece], context: WorkerContext,
    seal: (Piece, UnsafeMutableRawBufferPointer) throws -> WriteNumber
  ) throws -> [StoredRun] {
    var sealed: [(piece: Piece, number: WriteNumber, offset: Int)] = []
    var count = 0
    for piece in pieces {
      let byteCount = SegmentLayout.storedByteCount(piece.byteCount)
      let output = UnsafeMutableRawBufferPointer(rebasing: context.output[count..<(count + byteCount)])
      sealed.append((piece, try seal(piece, output), count))
      count += byteCount
    }
    let place = try slabs.append(UnsafeRawBufferPointer(rebasing: context.output[0..<count]))
    return sealed.map { piece, number, offset in
      let segments = SegmentLayout.segmentCount(UInt64(piece.byteCount))
      let lastLength = piece.byteCount - Int(segments - 1) * SegmentLayout.plaintextByteCountMax
      return StoredRun(
        file: piece.file,
        extent: Extent(
          start: piece.start, count: UInt32(segments), lastLength: UInt32(lastLength),
          writeNumber: number, slab: place.slab, offset: place.offset + UInt64(offset)))
    }
  }

  /// A file's inode as it is made from another one's: same kind, size, permissions and date of modification.
  func newInode(like inode: Inode, secret: [UInt8], now: Int64) -> Inode {
    var new = Inode(kind: .file, permissions: inode.permissions, now: now, epoch: epoch, secret: secret)
    new.size = inode.size
    new.modified = inode.modified
    return new
  }
}
