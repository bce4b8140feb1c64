import EncryptedFile

/// The stored bytes of a frame's segments, wherever they are.
package protocol FrameContents: Sendable {
  /// Copies bytes out. Any thread may call.
  func read(at offset: Int, into buffer: UnsafeMutableRawBufferPointer) throws
}

/// A segment of the contents does not open. The frames before it were kept.
package struct DamagedContents: Error, Equatable {
  /// The position of the segment's first byte.
  package let position: UInt64
}

/// Where the next frame of an arrival begins.
struct ArrivalCursor {
  /// Index of the file that the position lies in, or of an empty one before it.
  var index = 0
  /// The position of that file's first byte.
  var begin: UInt64 = 0
  var position: UInt64 = 0
  /// Bytes of all segments before the position.
  var storedByteCount: UInt64 = 0
  /// The file, when a part of it has come.
  var growing: GrowingFile?
}

/// A file of which a part has come.
final class GrowingFile: Sendable {
  let identity: NewFile
  let key: SharedFileKey

  init(_ identity: NewFile, key: SharedFileKey) {
    self.identity = identity
    self.key = key
  }
}

/// A frame that was checked against the manifest, divided into files.
struct FramePlan: Sendable {
  struct Part: Sendable {
    /// In the manifest.
    let index: Int
    /// The position of the file's first byte.
    let begin: UInt64
    let identity: NewFile
    /// The file's key, when other frames have parts of it; else it is computed where it is used.
    let key: SharedFileKey?
    /// The file's runs, by their numbers in the frame.
    let runs: Range<Int>
    /// Bytes of the file that are known after the frame.
    let byteCount: UInt64
  }

  let frame: SegmentFrame
  let parts: [Part]

  /// Moves the cursor behind the frame. Throws `invalidArgument` for a frame that cannot come next;
  /// then the cursor stays.
  init(
    _ frame: SegmentFrame, at cursor: inout ArrivalCursor, of manifest: borrowing Manifest, in store: Store
  ) throws {
    let grain = SegmentFrame.grain
    // The receiver has made sure that there is room for so many bytes, and for no more.
    guard UInt64(frame.contentsByteCount) <= manifest.storedByteCount - cursor.storedByteCount else {
      throw Self.wrong("has more segments than the message was said to have")
    }
    guard frame.end > cursor.position, frame.end <= manifest.byteCount else {
      throw Self.wrong("ends at byte \(frame.end), after \(cursor.position)")
    }
    var next = cursor
    var (run, parts) = (0, [Part]())
    while next.position < frame.end {
      let size = manifest.files[next.index].size
      guard size > 0 else {
        next.index += 1
        continue
      }
      let reached = min(frame.end - next.begin, size)
      guard reached == size || reached % grain == 0 else { throw Self.wrong("ends within a grain") }
      guard parts.count < SegmentFrame.fileCountMax else { throw Self.wrong("reaches into too many files") }
      let known = next.position - next.begin
      let first = run
      while run < frame.runs.count, frame.runs[run].file == UInt32(next.index) {
        guard frame.runs[run].start * grain >= known, frame.runs[run].endByte <= reached else {
          throw Self.wrong("has a run outside of what it describes")
        }
        run += 1
      }
      let isWhole = reached == size
      let identity = next.growing?.identity ?? store.newFile()
      if next.growing == nil, !isWhole {
        next.growing = GrowingFile(identity, key: SharedFileKey(try store.fileKey(identity)))
      }
      parts.append(
        Part(
          index: next.index, begin: next.begin, identity: identity, key: next.growing?.key,
          runs: first..<run, byteCount: reached))
      next.position = next.begin + reached
      guard isWhole else { continue }
      next.growing = nil
      next.index += 1
      next.begin = next.position
    }
    guard run == frame.runs.count else { throw Self.wrong("has a run of another file") }
    next.storedByteCount += UInt64(frame.contentsByteCount)
    self.frame = frame
    self.parts = parts
    cursor = next
  }

  private static func wrong(_ what: String) -> ContainerError {
    ContainerError(.invalidArgument, detail: "a frame of the contents \(what)")
  }
}

/// A frame whose segments a worker thread opens, seals and stores.
struct ArrivingFrame {
  let parts: [FramePlan.Part]
  /// The place before the frame.
  let before: ArrivalCursor
  let end: UInt64
  private let work: FrameWork
  private let workers: WorkerThreads
  /// Nil for a frame of zeros, which has nothing to store.
  private let ticket: WorkerThreads.Ticket?

  init(
    _ plan: FramePlan, _ contents: any FrameContents, before: ArrivalCursor, checkInterval: Int,
    in store: Store
  ) {
    self.before = before
    parts = plan.parts
    end = plan.frame.end
    let work = FrameWork(plan, contents)
    self.work = work
    workers = store.workers.threads
    ticket =
      plan.frame.runs.isEmpty
      ? nil : workers.begin { [store] context in work.run(in: store, checkInterval, context) }
  }

  var isFinished: Bool { ticket.map { workers.isFinished($0) } ?? true }

  /// Waits for the end of the work. Returns the stored runs of each part, in order, with the part's number as
  /// their owner. Throws ``DamagedContents``.
  func runs() throws -> [StoredRun] {
    guard let ticket else { return [] }
    workers.wait(for: ticket)
    return try work.outcome!.get()
  }
}

private final class FrameWork: @unchecked Sendable {
  // Invariant: the fields belong to the worker until its job has ended, and then to the thread that
  // has waited for it.
  private var work: (plan: FramePlan, contents: any FrameContents)?
  private(set) var outcome: Result<[StoredRun], any Error>?

  init(_ plan: FramePlan, _ contents: any FrameContents) { work = (plan, contents) }

  func run(in store: Store, _ checkInterval: Int, _ context: WorkerContext) {
    // The keys are wiped, and the place of the contents is free, as soon as this is done.
    guard let (plan, contents) = work.take() else { return }
    outcome = Result { try Self.reseal(plan, contents, in: store, checkInterval, context) }
  }

  private static func reseal(
    _ plan: FramePlan, _ contents: any FrameContents, in store: Store, _ checkInterval: Int,
    _ context: WorkerContext
  ) throws -> [StoredRun] {
    var unit = SealedUnit(context)
    var copy = ContentsCopy(contents, of: plan.frame.contentsByteCount, in: context.input)
    try plan.frame.withKeys { keys in
      var segment = 0
      for (number, part) in plan.parts.enumerated() where !part.runs.isEmpty {
        let key = try part.key ?? SharedFileKey(store.fileKey(part.identity))
        for run in plan.frame.runs[part.runs] {
          let target = SegmentRun(
            start: run.start, count: run.count, lastLength: run.lastLength,
            writeNumber: store.session.take(Int(run.count)))
          var batch = try SegmentBatch(target, key: key.key, by: context.cipher)
          try unit.add(CollectionOfOne(target), of: number) { output in
            for index in 0..<run.count {
              let stored = try copy.next(run.storedByteCount(index))
              let begin = segment * SegmentFrame.keyByteCount
              do throws(SegmentError) {
                try batch.reseal(
                  stored.bytes,
                  segmentKey: keys.bytes.extracting(begin..<(begin + SegmentFrame.keyByteCount)),
                  index: run.start + UInt64(index), checkInterval: checkInterval, into: &output)
              } catch .notAuthentic(let grain) {
                throw DamagedContents(position: part.begin + grain * SegmentFrame.grain)
              }
              segment += 1
            }
          }
        }
      }
    }
    return try unit.append(to: store.slabs)
  }
}

/// The contents of a frame, a few segments at a time. The sender may still change what it shares, so that everything
/// is copied before it is looked at.
private struct ContentsCopy {
  /// As much as stays in a core's own cache beside what becomes of it.
  private static let byteCountMax = 8 * SegmentLayout.storedByteCountMax

  private let contents: any FrameContents
  private let byteCount: Int
  private let buffer: UnsafeMutableRawBufferPointer
  /// The bytes that the buffer has.
  private var copied = 0..<0
  private var position = 0

  init(_ contents: any FrameContents, of byteCount: Int, in buffer: UnsafeMutableRawBufferPointer) {
    self.contents = contents
    self.byteCount = byteCount
    self.buffer = buffer
  }

  /// The next bytes, of one segment; they are valid until the next call.
  mutating func next(_ count: Int) throws -> UnsafeRawBufferPointer {
    if position + count > copied.upperBound {
      copied = position..<min(position + Self.byteCountMax, byteCount)
      try contents.read(at: position, into: UnsafeMutableRawBufferPointer(rebasing: buffer[..<copied.count]))
    }
    defer { position += count }
    let begin = position - copied.lowerBound
    return UnsafeRawBufferPointer(rebasing: buffer[begin..<(begin + count)])
  }
}
