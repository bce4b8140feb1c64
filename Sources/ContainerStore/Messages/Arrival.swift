import EncryptedFile
import Locks
import SodiumPrimitives

/// A message that is being received into the inbox. The arrival takes the list of the message's
/// files, then their contents, and makes all of it visible with one commit.
///
/// Received bytes are stored unit by unit and survive the death of the process; see
/// ``Container/beginArrival(_:replacing:)``. Calls are serialized. After a call has thrown, the
/// arrival accepts no more data and can only be suspended or discarded.
package final class Arrival: Sendable {
  /// The message's future directory in the inbox, `/Inbox/<sender>/<time>`; empty for a message
  /// without files.
  package let directory: String

  private let messages: Messages
  var store: Store { messages.store }
  let key: ArrivalKey
  let message: ArrivingMessage
  /// The directory for received files; nil for a message without files.
  let staging: Staging?
  private let state: Guarded<State>

  /// The number of bytes after which the received data is made durable.
  static let durableByteCount: UInt64 = 256 << 20

  struct StagedFile {
    var index: Int
    var identity: NewFile
    var byteCount: UInt64
  }

  struct State: ~Copyable {
    var manifest: Manifest
    /// Stored files that have bytes, in order; only the last may be incomplete.
    var staged: [StagedFile]
    /// Bytes that are stored.
    var received: UInt64
    /// Index of the next file to check for contents.
    var next = 0
    var growing: GrowingFile?
    var unit: ArrivalUnit?
    /// The unit before `unit`, while it is being written.
    var writing: WritingUnit?
    /// Bytes of an incomplete grain at the start of the unit's input.
    var gathered = 0
    var sinceDurable: UInt64 = 0
    var failure: (any Error)?
    /// Bytes for which the slabs reserve room.
    var expectedByteCount: UInt64 = 0
    var hasEnded = false

    /// Bytes of whole grains that were taken: those stored and those being sealed or written.
    var sealedByteCount: UInt64 {
      received + (writing?.unit.plaintextByteCount ?? 0) + (unit?.plaintextByteCount ?? 0)
    }
  }

  init(
    _ messages: Messages, _ key: ArrivalKey, _ message: ArrivingMessage, _ staging: Staging?,
    staged: [StagedFile]
  ) {
    self.messages = messages
    self.key = key
    self.message = message
    self.staging = staging
    directory = staging.map { StorePath.text(InboxName.directory(of: $0.sender) + [$0.time]) } ?? ""
    state = Guarded(
      State(
        manifest: Manifest(message), staged: staged, received: staged.reduce(0) { $0 + $1.byteCount }))
  }

  deinit { suspend() }

  // MARK: Files

  /// The number of files that were added.
  package var filesKnown: UInt64 { state.withLock { UInt64($0.manifest.files.count) } }

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
          expectRest(&state)
        } else {
          // The sender has another list than before, so everything is sent again.
          try messages.dropStagedFiles(of: staging!)
          state.staged = []
          state.received = 0
          expectRest(&state)
        }
      } catch {
        state.failure = error
        throw error
      }
    }
  }

  /// The files' future paths and sizes in bytes; empty until all files are known.
  package var files: [(path: String, size: UInt64)] {
    state.withLock { state in
      guard state.manifest.isComplete else { return [] }
      return zip(state.manifest.places, state.manifest.files).map {
        (directory + "/" + String(decoding: $0, as: UTF8.self), $1.size)
      }
    }
  }

  /// The number of plaintext bytes stored, out of all files. When the arrival begins, the sender
  /// continues after them; later more bytes may have been taken and not be stored yet.
  package var received: UInt64 { state.withLock { $0.received } }

  /// Whether the stored files can be the beginning of the announced ones.
  private func fits(_ state: borrowing State) -> Bool {
    var staged = state.staged[...]
    for (index, file) in state.manifest.files.enumerated() where file.size > 0 {
      guard let first = staged.popFirst() else { return true }
      let isWhole = first.byteCount == file.size
      let isPart =
        first.byteCount > 0 && first.byteCount < file.size
        && first.byteCount % UInt64(SegmentLayout.plaintextByteCountMax) == 0
      guard first.index == index, isWhole || (isPart && staged.isEmpty) else { return false }
    }
    return staged.isEmpty
  }

  // MARK: Contents

  /// Appends the next bytes of the files' concatenated contents. Throws `diskFull`, and
  /// `noSuchFile` if the staged files were removed.
  package func append(_ plaintext: UnsafeRawBufferPointer) throws {
    try state.withLock { state in
      try requireUnderWay(state)
      guard state.manifest.isComplete else {
        throw ContainerError(.invalidArgument, detail: "contents before all files are known")
      }
      let taken = state.sealedByteCount + UInt64(state.gathered)
      guard UInt64(plaintext.count) <= message.byteCount - taken else {
        throw ContainerError(
          .invalidArgument, detail: "more than the \(message.byteCount) bytes that were announced")
      }
      guard !plaintext.isEmpty else { return }
      do {
        try store.namingPath(store.place) { try take(plaintext, &state) }
      } catch {
        state.failure = error
        throw error
      }
    }
  }

  private func take(_ plaintext: UnsafeRawBufferPointer, _ state: inout State) throws {
    let grain = SegmentLayout.plaintextByteCountMax
    if state.unit == nil { state.unit = ArrivalUnit(store.workers.borrowContext()) }
    var rest = plaintext
    while !rest.isEmpty {
      if state.growing == nil { state.growing = try nextFile(&state) }
      let left = state.growing!.rest
      if state.gathered == 0 {
        // Seal whole grains directly from the caller's bytes.
        let count = Int(min(UInt64(rest.count), left))
        let whole = UInt64(count) == left ? count : count / grain * grain
        if whole > 0 {
          let sealed = try seal(UnsafeRawBufferPointer(rebasing: rest[0..<whole]), &state)
          rest = UnsafeRawBufferPointer(rebasing: rest[sealed...])
          continue
        }
      }
      let input = state.unit!.context.input
      let wanted = Int(min(UInt64(grain), left))
      let count = min(rest.count, wanted - state.gathered)
      UnsafeMutableRawBufferPointer(rebasing: input[state.gathered..<(state.gathered + count)])
        .copyMemory(from: UnsafeRawBufferPointer(rebasing: rest[0..<count]))
      state.gathered += count
      rest = UnsafeRawBufferPointer(rebasing: rest[count...])
      if state.gathered == wanted {
        _ = try seal(UnsafeRawBufferPointer(rebasing: input[0..<wanted]), &state)
        state.gathered = 0
      }
    }
    if state.sealedByteCount == message.byteCount { try store(&state) }
  }

  /// Seals as many bytes as the unit has room for, and returns their number.
  private func seal(_ plaintext: UnsafeRawBufferPointer, _ state: inout State) throws -> Int {
    let count = try state.unit!.seal(plaintext, of: state.growing!, in: store)
    if state.growing!.rest == 0 { state.growing = nil }
    if state.unit!.isFull { try handOver(&state) }
    return count
  }

  private func nextFile(_ state: inout State) throws -> GrowingFile {
    while state.manifest.files[state.next].size == 0 { state.next += 1 }
    defer { state.next += 1 }
    let identity = store.newFile()
    let key = try store.fileKey(identity)
    return GrowingFile(
      index: state.next, identity: identity, size: state.manifest.files[state.next].size, sealedByteCount: 0,
      key: key)
  }

  /// Reserves room in the slabs for the bytes that are still missing.
  private func expectRest(_ state: inout State) {
    state.expectedByteCount = message.byteCount - state.received
    store.slabs.expect(state.expectedByteCount)
  }

  /// Continues after the staged bytes.
  private func goOn(_ state: inout State) throws {
    guard let last = state.staged.last else { return }
    state.next = last.index + 1
    let size = state.manifest.files[last.index].size
    guard last.byteCount < size else { return }
    // The inode is read from the catalog: the file may have been begun under an older epoch key.
    let inode = try store.withSnapshot { try $0.inode(last.identity.id) }
    let key = try store.fileKey(last.identity.id, inode)
    state.growing = GrowingFile(
      index: last.index, identity: last.identity, size: size, sealedByteCount: last.byteCount, key: key)
  }

  /// Starts to write a full unit, so that it is written while the next one is sealed.
  private func handOver(_ state: inout State) throws {
    try store.requireOpen()
    let spare = try keepWritten(&state)
    state.writing = WritingUnit(state.unit!, in: store)
    state.unit = ArrivalUnit(spare ?? store.workers.borrowContext())
  }

  /// Waits for the unit that is being written, and commits it. Returns the unit's context for
  /// reuse.
  private func keepWritten(_ state: inout State) throws -> WorkerContext? {
    guard let writing = state.writing else { return nil }
    let location = try writing.location()
    // From here on the commit owns the extents, even if it fails.
    state.writing = nil
    do {
      try keep(writing.unit, at: location, &state)
    } catch {
      store.workers.giveBack(writing.unit.context)
      throw error
    }
    return writing.unit.context
  }

  /// Writes and commits everything that is sealed.
  private func store(_ state: inout State) throws {
    if let spare = try keepWritten(&state) { store.workers.giveBack(spare) }
    guard let unit = state.unit, !unit.isEmpty else { return }
    try keep(unit, at: store.slabs.append(unit.sealed), &state)
    state.unit!.removeAll()
  }

  /// Commits the runs of a unit, which were written with one write.
  private func keep(_ unit: ArrivalUnit, at location: SlabStore.Location, _ state: inout State) throws {
    guard let staging else { return }
    let runs = unit.runs(at: location)
    let files = state.manifest.files
    try store.transaction(storing: runs.map(\.stored.extent), durability: ContainerDurability.none) {
      transaction in
      try transaction.requireStaging(staging)
      for run in runs { try transaction.stage(run, files[run.index], in: staging) }
    }
    // The runs now survive the death of the process.
    for run in runs {
      if run.isFirst {
        state.staged.append(StagedFile(index: run.index, identity: run.file, byteCount: run.byteCount))
      } else {
        state.staged[state.staged.count - 1].byteCount = run.byteCount
      }
    }
    state.received += unit.plaintextByteCount
    state.sinceDurable += unit.plaintextByteCount
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
    try state.withLock { state in
      try requireUnderWay(state)
      guard state.manifest.isComplete, state.received == message.byteCount else {
        throw ContainerError(
          .invalidArgument, detail: "\(state.received) of \(message.byteCount) bytes have arrived")
      }
      let delivery = ArrivalCommit(
        key: key, message: message, staging: staging, manifest: state.manifest, staged: state.staged)
      do {
        let queued = try messages.commit(delivery)
        end(&state)
        return queued
      } catch {
        state.failure = error
        throw error
      }
    }
  }

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
      // Bytes that are not stored are sent again.
      if state.failure == nil { try? store(&state) }
      end(&state)
    }
  }

  private func end(_ state: inout State) {
    state.hasEnded = true
    state.growing = nil
    if let unit = state.unit { store.workers.giveBack(unit.context) }
    state.unit = nil
    if let writing = state.writing {
      if let location = try? writing.location() {
        store.slabs.discard(writing.unit.runs(at: location).map(\.stored.extent))
      }
      store.workers.giveBack(writing.unit.context)
    }
    state.writing = nil
    if state.expectedByteCount > 0 { store.slabs.endExpecting(state.expectedByteCount) }
    state.manifest = Manifest(message)
    state.staged = []
    messages.arrivals.end(key)
  }
}
