import EncryptedFile
import Locks
import SodiumPrimitives

/// A message that is being received into the inbox. The arrival takes the list of the message's
/// files, then frames of their contents, and makes all of it visible with one commit.
///
/// The segments of a frame are opened and sealed on the container's threads, several frames at
/// once. What is stored survives the death of the process, from time to time; see
/// ``Container/beginArrival(_:replacing:)``. Calls are serialized. After a call has thrown anything
/// but ``DamagedContents``, the arrival accepts no more contents and can only be suspended or discarded.
package final class Arrival: Sendable {
  /// The message's future directory in the inbox, `/Inbox/<sender>/<time>`; empty for a message
  /// without files.
  package let directory: String

  private let messages: Messages
  var store: Store { messages.store }
  let key: ArrivalKey
  package let message: ArrivingMessage
  /// The directory for received files; nil for a message without files.
  let staging: Staging?
  private let state: Guarded<State>

  /// The number of bytes after which stored contents are staged.
  private let stagingInterval: UInt64
  /// The number of bytes after which staged files are made durable.
  static let durableByteCount: UInt64 = 256 << 20
  /// One segment of so many is opened again after it was sealed.
  static let checkInterval = 64

  struct StagedFile {
    var index: Int
    var identity: NewFile
    var byteCount: UInt64
  }

  /// Contents of one file that are stored and not staged yet.
  struct StoredPart {
    let index: Int
    let identity: NewFile
    /// Bytes of the file after them.
    var byteCount: UInt64
    var extents: [Extent] = []
  }

  struct State: ~Copyable {
    var manifest: Manifest
    /// Staged files that have bytes, in order; only the last may be incomplete.
    var staged: [StagedFile]
    /// The position up to which frames were taken.
    var cursor = ArrivalCursor()
    /// Frames that are being handled, in order.
    var underWay: [ArrivingFrame] = []
    /// The parts of files that were stored since the last staging, in order.
    var stored: [StoredPart] = []
    var storedByteCount: UInt64 = 0
    /// The position up to which everything is stored.
    var received: UInt64
    /// Bytes of the segments that were staged before the arrival began.
    var stagedByteCount: UInt64
    var sinceDurable: UInt64 = 0
    var failure: (any Error)?
    /// Bytes for which the slabs reserve room.
    var expectedByteCount: UInt64 = 0
    var hasEnded = false
    var arrivedCount: UInt64 = 0
  }

  init(
    _ messages: Messages, _ key: ArrivalKey, _ message: ArrivingMessage, _ staging: Staging?,
    staged: [StagedFile], stagedByteCount: UInt64, stagingInterval: UInt64
  ) {
    self.messages = messages
    self.stagingInterval = stagingInterval
    self.key = key
    self.message = message
    self.staging = staging
    directory = staging.map { StorePath.text(InboxName.directory(of: $0.sender) + [$0.time]) } ?? ""
    state = Guarded(
      State(
        manifest: Manifest(message), staged: staged, received: staged.reduce(0) { $0 + $1.byteCount },
        stagedByteCount: stagedByteCount))
  }

  deinit { suspend() }

  // MARK: Files

  /// The number of files that were added.
  package var filesKnown: UInt64 { state.withLock { UInt64($0.manifest.files.count) } }

  /// The number of different folders in their paths; 0 until all files are known.
  package var folderCount: Int { state.withLock { $0.manifest.folderCount } }

  /// Adds the next files, in order. The last of them determines the paths of all files. Throws
  /// `invalidName` for a path that is not an absolute path of a container, and `invalidArgument`
  /// for files that do not fit the announced counts; then none of `files` is added.
  package func add(_ files: [ArrivingFile]) throws {
    try state.withLock { state in
      try requireUnderWay(state)
      guard !files.isEmpty else { return }
      try state.manifest.add(files)
      guard state.manifest.isComplete else { return }
      do {
        if fits(state) {
          try goOn(&state)
        } else {
          // The sender has another list than before, so everything is sent again.
          try messages.dropStagedFiles(of: staging!)
          state.staged = []
          state.received = 0
          state.stagedByteCount = 0
        }
        state.expectedByteCount = message.storedByteCount - state.cursor.storedByteCount
        store.slabs.expect(state.expectedByteCount)
      } catch {
        state.failure = error
        throw error
      }
    }
  }

  /// How many of the files have begun, and the position of the contents at which the next one does.
  package struct Begun: Sendable {
    package fileprivate(set) var fileCount = 0
    package fileprivate(set) var position: UInt64 = 0
    package init() {}
  }

  /// The future paths and the sizes in bytes of further files that have begun: of those with contents
  /// something was received, and everything before those without. None until all files are known.
  package func takeBegunFiles(_ begun: inout Begun) -> [(path: String, size: UInt64)] {
    state.withLock { state in
      guard state.manifest.isComplete else { return [] }
      var files: [(path: String, size: UInt64)] = []
      while begun.fileCount < state.manifest.files.count {
        let (place, size) = (
          state.manifest.places[begun.fileCount], state.manifest.files[begun.fileCount].size
        )
        guard begun.position < state.received + (size == 0 ? 1 : 0) else { break }
        files.append((directory + "/" + String(decoding: place, as: UTF8.self), size))
        begun.fileCount += 1
        begun.position += size
      }
      return files
    }
  }

  /// The position up to which everything is stored. When the arrival begins, the sender continues
  /// there; later frames behind it may have been taken.
  package var received: UInt64 { state.withLock { $0.received } }

  /// When the arrival begins: bytes of the segments that may still come, for which there has to be room.
  package var missingByteCount: UInt64 {
    message.storedByteCount - state.withLock { min($0.stagedByteCount, message.storedByteCount) }
  }

  /// Whether the stored files can be the beginning of the announced ones.
  private func fits(_ state: borrowing State) -> Bool {
    var staged = state.staged[...]
    for (index, file) in state.manifest.files.enumerated() where file.size > 0 {
      guard let first = staged.popFirst() else { return true }
      let isWhole = first.byteCount == file.size
      let isPart =
        first.byteCount > 0 && first.byteCount < file.size && first.byteCount % SegmentFrame.grain == 0
      guard first.index == index, isWhole || (isPart && staged.isEmpty) else { return false }
    }
    return staged.isEmpty
  }

  /// Continues after the staged bytes.
  private func goOn(_ state: inout State) throws {
    guard let last = state.staged.last else { return }
    guard state.stagedByteCount <= message.storedByteCount else {
      throw ContainerError(
        .invalidArgument, detail: "\(state.stagedByteCount) bytes of a message of \(message.storedByteCount)")
    }
    state.cursor.storedByteCount = state.stagedByteCount
    state.cursor.position = state.received
    state.cursor.index = last.index
    state.cursor.begin = state.received - last.byteCount
    guard last.byteCount < state.manifest.files[last.index].size else {
      state.cursor.index += 1
      state.cursor.begin = state.received
      return
    }
    // The inode is read from the catalog: the file may have been begun under an older epoch key.
    let inode = try store.withSnapshot { try $0.inode(last.identity.id) }
    let key = SharedFileKey(try store.fileKey(last.identity.id, inode))
    state.cursor.growing = GrowingFile(last.identity, key: key)
  }

  // MARK: Contents

  /// Takes the next frame. Returns as soon as no more frames wait than one beyond those that the
  /// container's threads handle. The segments are stored some time later.
  ///
  /// Throws `invalidArgument` for a frame that cannot come next, `diskFull`, and `noSuchFile` if the
  /// staged files were removed. Throws ``DamagedContents`` for a segment of this frame or of an
  /// earlier one; then everything from ``received`` on has to come again.
  package func append(_ frame: SegmentFrame, _ contents: any FrameContents) throws {
    guard state.withLock({ $0.hasEnded || $0.manifest.isComplete }) else {
      throw ContainerError(.invalidArgument, detail: "contents before all files are known")
    }
    try change { state in
      let before = state.cursor
      let plan = try FramePlan(frame, at: &state.cursor, of: state.manifest, in: store)
      while let first = state.underWay.first,
        first.isFinished || state.underWay.count > store.workers.threads.count
      {
        try finishFirst(&state)
      }
      try store.requireOpen()
      state.underWay.append(
        ArrivingFrame(plan, contents, before: before, checkInterval: Self.checkInterval, in: store))
    }
  }

  /// Returns when all frames that were taken are stored. Throws as ``append(_:_:)`` does.
  package func finish() throws { try change { try finishAll(&$0) } }

  private func change<R>(_ body: (inout State) throws -> R) throws -> R {
    try state.withLock { state in
      try requireUnderWay(state)
      do {
        return try store.namingPath(store.place) { try body(&state) }
      } catch let error as DamagedContents {
        // The frames behind it are dropped, and come again.
        if let first = state.underWay.first { state.cursor = first.before }
        drop(&state)
        throw error
      } catch {
        state.failure = error
        throw error
      }
    }
  }

  private func finishAll(_ state: inout State) throws {
    while !state.underWay.isEmpty { try finishFirst(&state) }
  }

  /// Waits for the first frame under way. When it fails, it stays the first.
  private func finishFirst(_ state: inout State) throws {
    let frame = state.underWay[0]
    var runs = try frame.runs()[...]
    state.underWay.removeFirst()
    for (number, part) in frame.parts.enumerated() {
      let own = runs.prefix { $0.owner == number }
      runs = runs.dropFirst(own.count)
      if state.stored.last?.index != part.index {
        state.stored.append(StoredPart(index: part.index, identity: part.identity, byteCount: 0))
      }
      state.stored[state.stored.count - 1].byteCount = part.byteCount
      state.stored[state.stored.count - 1].extents += own.map(\.extent)
    }
    state.storedByteCount += frame.end - state.received
    state.received = frame.end
    if state.storedByteCount >= stagingInterval || state.stored.count >= Self.stagedFileCount {
      try stage(&state)
    }
  }

  /// Limits the size of a commit, so that tiny files do not delay other commits.
  private static let stagedFileCount = 4096

  /// Waits for the frames under way and gives back what they have stored.
  private func drop(_ state: inout State) {
    for frame in state.underWay {
      if let runs = try? frame.runs() { store.slabs.discard(runs.map(\.extent)) }
    }
    state.underWay = []
  }

  /// Records what was stored as files of the staging directory.
  private func stage(_ state: inout State) throws {
    guard let staging, !state.stored.isEmpty else { return }
    let stored = state.stored
    let files = state.manifest.files
    let staged = state.staged.last
    // From here on the commit owns the extents, even if it fails.
    state.stored = []
    state.sinceDurable += state.storedByteCount
    state.storedByteCount = 0
    try store.transaction(storing: stored.flatMap(\.extents), durability: ContainerDurability.none) {
      transaction in
      try transaction.requireStaging(staging)
      for file in stored {
        if file.index == staged?.index {
          try transaction.extendStaged(file, after: staged!, in: staging)
        } else {
          transaction.putStaged(file, files[file.index])
          try transaction.link(staging.directory, Staging.name(file.index), to: file.identity.id, kind: .file)
        }
      }
    }
    // They now survive the death of the process.
    for file in stored {
      if file.index == state.staged.last?.index { state.staged.removeLast() }
      state.staged.append(StagedFile(index: file.index, identity: file.identity, byteCount: file.byteCount))
    }
    try store.flush(durably: false)
    if state.sinceDurable >= Self.durableByteCount {
      state.sinceDurable = 0
      store.synchronizeSoon()
    }
  }

  private func requireUnderWay(_ state: borrowing State) throws {
    if state.hasEnded { throw ContainerError(.invalidArgument, detail: "the arrival has ended") }
    if let failure = state.failure { throw failure }
  }

  // MARK: End

  /// Makes the files at their paths in the inbox, the ledger's entry and the queued message visible
  /// with one commit. The commit is durable when this returns, unless the container's durability is
  /// `none`. Throws `invalidArgument` if bytes are missing or the message has arrived before,
  /// `noSuchFile` if the staged files were removed, and `fileExists` if another item is at
  /// ``directory``.
  package func commit() throws -> QueuedMessage {
    try change { state in
      try finishAll(&state)
      guard state.manifest.isComplete, state.received == message.byteCount else {
        throw ContainerError(
          .invalidArgument, detail: "\(state.received) of \(message.byteCount) bytes have arrived")
      }
      let delivery = ArrivalCommit(
        key: key, message: message, staging: staging, manifest: state.manifest, staged: state.staged,
        stored: state.stored)
      state.stored = []
      let committed = try messages.commit(delivery)
      state.arrivedCount = committed.arrivedCount
      end(&state)
      return committed.queued
    }
  }

  /// After ``commit()``: how many messages have arrived under the message's incarnation; as durable as
  /// the commit.
  package var arrivedCount: UInt64 { state.withLock { $0.arrivedCount } }

  /// Removes the arrival completely. The removal survives a power failure, because the sender
  /// relies on it once it is acknowledged. Does nothing if the arrival has ended.
  package func discard() throws {
    try state.withLock { state in
      guard !state.hasEnded else { return }
      defer { end(&state) }
      guard let staging else { return }
      try store.namingPath(store.place) {
        try store.transaction(durability: store.options.durability == .none ? nil : .full) {
          try $0.dropStaging(staging)
        }
      }
    }
  }

  /// Keeps the staged files for a later arrival of the message. Does nothing if the arrival has
  /// ended.
  package func suspend() {
    state.withLock { state in
      guard !state.hasEnded else { return }
      // Contents that are not staged are sent again.
      if state.failure == nil {
        try? finishAll(&state)
        try? stage(&state)
      }
      end(&state)
    }
  }

  private func end(_ state: inout State) {
    state.hasEnded = true
    drop(&state)
    store.slabs.discard(state.stored.flatMap(\.extents))
    state.stored = []
    state.cursor = ArrivalCursor()
    if state.expectedByteCount > 0 { store.slabs.endExpecting(state.expectedByteCount) }
    state.manifest = Manifest(message)
    state.staged = []
    messages.arrivals.end(key)
  }
}
