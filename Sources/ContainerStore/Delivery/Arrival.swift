import EncryptedFile
import SodiumPrimitives

/// A message on its way into the inbox: takes the list of its files, then their contents, and makes all of it visible with one commit.
///
/// What was taken is kept unit by unit and survives the death of the process; see ``Container/beginArrival(_:replacing:)``. Calls
/// are taken one at a time. When one throws, the arrival can be suspended or discarded, and takes no more.
package final class Arrival: Sendable {
  /// The message's directory in the inbox, `/Inbox/<sender>/<time>`, as it is going to be; empty for a message without files.
  package let directory: String

  let container: Container
  let key: ArrivalKey
  let message: ArrivingMessage
  /// Nil for a message without files.
  let staging: Staging?
  private let state: Guarded<State>

  /// Bytes after which what arrived is made durable.
  static let durableByteCount: UInt64 = 256 << 20

  struct StagedFile {
    var index: Int
    var identity: NewFile
    var byteCount: UInt64
  }

  struct State: ~Copyable {
    var manifest: Manifest
    /// Those that have bytes, in order; only the last may be there in part.
    var staged: [StagedFile]
    /// Bytes that are kept.
    var received: UInt64
    /// The next file to look at.
    var next = 0
    var growing: GrowingFile?
    var unit: ArrivalUnit?
    /// The unit before it.
    var writing: WritingUnit?
    /// Bytes of a grain, at the beginning of the unit's input.
    var gathered = 0
    var sinceDurable: UInt64 = 0
    var failure: (any Error)?
    /// What the slabs make room for.
    var expectedByteCount: UInt64 = 0
    var hasEnded = false

    /// Of whole grains that were taken: what is kept, and what is on its way there.
    var sealedByteCount: UInt64 {
      received + (writing?.unit.plaintextByteCount ?? 0) + (unit?.plaintextByteCount ?? 0)
    }
  }

  init(
    _ container: Container, _ key: ArrivalKey, _ message: ArrivingMessage, _ staging: Staging?,
    staged: [StagedFile]
  ) {
    self.container = container
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

  /// So many files were added.
  package var filesKnown: UInt64 { state.withLock { UInt64($0.manifest.files.count) } }

  /// The next files, in order. With the last, their places are decided. Throws `invalidName` for what is no absolute path of a
  /// container, `invalidArgument` for what does not fit what was announced; then nothing of it is taken.
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
          // The sender has another list than before: everything is sent anew.
          try container.dropStagedFiles(of: staging!)
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

  /// Where they are going to be, and their sizes in bytes, once all are known; until then none.
  package var files: [(path: String, size: UInt64)] {
    state.withLock { state in
      guard state.manifest.isComplete else { return [] }
      return zip(state.manifest.places, state.manifest.files).map {
        (directory + "/" + String(decoding: $0, as: UTF8.self), $1.size)
      }
    }
  }

  /// Plaintext bytes that are kept, of all. When the arrival begins, those that follow are wanted next; later some more were taken and are
  /// on their way to the disk.
  package var received: UInt64 { state.withLock { $0.received } }

  /// Whether what is staged can be the beginning of the files that are announced.
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

  /// What follows of the files' contents, one after another. Throws `diskFull`, and `noSuchFile` when somebody has removed what was
  /// staged.
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
        try container.namingPath(container.io.place) { try take(plaintext, &state) }
      } catch {
        state.failure = error
        throw error
      }
    }
  }

  private func take(_ plaintext: UnsafeRawBufferPointer, _ state: inout State) throws {
    let grain = SegmentLayout.plaintextByteCountMax
    if state.unit == nil { state.unit = ArrivalUnit(container.borrowContext()) }
    var rest = plaintext
    while !rest.isEmpty {
      if state.growing == nil { state.growing = try nextFile(&state) }
      let left = state.growing!.rest
      if state.gathered == 0 {
        // Straight from the caller's bytes, as far as they are whole grains.
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

  /// Returns how many bytes it sealed: as many as the unit had room for.
  private func seal(_ plaintext: UnsafeRawBufferPointer, _ state: inout State) throws -> Int {
    let count = try state.unit!.seal(plaintext, of: state.growing!, in: container)
    if state.growing!.rest == 0 { state.growing = nil }
    if state.unit!.isFull { try handOver(&state) }
    return count
  }

  private func nextFile(_ state: inout State) throws -> GrowingFile {
    while state.manifest.files[state.next].size == 0 { state.next += 1 }
    defer { state.next += 1 }
    let identity = NewFile(id: container.takeFileIDs(1), secret: Random.bytes(Inode.secretByteCount))
    let key = try container.keys.fileKey(identity.id, epoch: container.epoch, secret: identity.secret)
    return GrowingFile(
      index: state.next, identity: identity, size: state.manifest.files[state.next].size, sealedByteCount: 0,
      key: key)
  }

  /// What is still to come is known: room for it is made ahead.
  private func expectRest(_ state: inout State) {
    state.expectedByteCount = message.byteCount - state.received
    container.slabs.expect(state.expectedByteCount)
  }

  /// Begins behind what is staged.
  private func goOn(_ state: inout State) throws {
    guard let last = state.staged.last else { return }
    state.next = last.index + 1
    let size = state.manifest.files[last.index].size
    guard last.byteCount < size else { return }
    // As it is in the catalog: it may have been begun under an older key.
    let inode = try container.withStoredCatalog { try $0.inode(last.identity.id) }
    let key = try container.fileKey(last.identity.id, inode)
    state.growing = GrowingFile(
      index: last.index, identity: last.identity, size: size, sealedByteCount: last.byteCount, key: key)
  }

  /// The unit is full: it is written while the next one is sealed.
  private func handOver(_ state: inout State) throws {
    try container.requireOpen()
    let spare = try keepWritten(&state)
    state.writing = WritingUnit(state.unit!, container)
    state.unit = ArrivalUnit(spare ?? container.borrowContext())
  }

  /// Waits for the unit that is being written, and keeps it. Returns what it was sealed in.
  private func keepWritten(_ state: inout State) throws -> WorkerContext? {
    guard let writing = state.writing else { return nil }
    let place = try writing.place()
    // From here on its extents are the commit's, whatever becomes of that.
    state.writing = nil
    do {
      try keep(writing.unit, in: place, &state)
    } catch {
      container.giveBack(writing.unit.context)
      throw error
    }
    return writing.unit.context
  }

  /// All that is sealed is written and kept.
  private func store(_ state: inout State) throws {
    if let spare = try keepWritten(&state) { container.giveBack(spare) }
    guard let unit = state.unit, !unit.runs.isEmpty else { return }
    try keep(unit, in: container.slabs.append(unit.sealed), &state)
    state.unit!.removeAll()
  }

  /// One commit for what was written with one write.
  private func keep(_ unit: ArrivalUnit, in place: WritingUnit.Place, _ state: inout State) throws {
    guard let staging else { return }
    let runs = unit.runs(in: place)
    let files = state.manifest.files
    try container.transaction(storing: runs.map(\.extent), durability: Container.Durability.none) {
      transaction in
      try transaction.requireStaging(staging)
      for run in runs { try transaction.stage(run, files[run.index], in: staging) }
    }
    // From here on it survives the process.
    for run in runs {
      if run.isFirst {
        state.staged.append(StagedFile(index: run.index, identity: run.file, byteCount: run.byteCount))
      } else {
        state.staged[state.staged.count - 1].byteCount = run.byteCount
      }
    }
    state.received += unit.plaintextByteCount
    state.sinceDurable += unit.plaintextByteCount
    try container.flush(durably: false)
    if state.sinceDurable >= Self.durableByteCount {
      state.sinceDurable = 0
      container.synchronizeSoon()
    }
  }

  private func requireUnderWay(_ state: borrowing State) throws {
    if state.hasEnded { throw ContainerError(.invalidArgument, detail: "the arrival has ended") }
    if let failure = state.failure { throw failure }
  }

  // MARK: End

  /// All is there: the files under their places in the inbox, the ledger's entry and the queued message become visible with one
  /// commit, which is durable when this returns unless the container's durability is `none`. Throws `invalidArgument` when bytes are
  /// missing or the message has arrived before, `noSuchFile` when somebody has removed what was staged, `fileExists` when somebody
  /// has put something in the place of ``directory``.
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
        let queued = try container.commit(delivery)
        end(&state)
        return queued
      } catch {
        state.failure = error
        throw error
      }
    }
  }

  /// Nothing is left of it, also after a power failure: whoever is told so relies on it. Fine when it has ended.
  package func discard() throws {
    try state.withLock { state in
      guard !state.hasEnded else { return }
      defer { end(&state) }
      guard let staging else { return }
      try container.namingPath(container.io.place) {
        try container.transaction(durability: container.options.durability == .none ? nil : .full) {
          try $0.dropStaging(staging)
        }
      }
    }
  }

  /// Keeps what is staged, for an arrival that begins later. Fine when it has ended.
  package func suspend() {
    state.withLock { state in
      guard !state.hasEnded else { return }
      // What is not kept is sent again.
      if state.failure == nil { try? store(&state) }
      end(&state)
    }
  }

  private func end(_ state: inout State) {
    state.hasEnded = true
    state.growing = nil
    if let unit = state.unit { container.giveBack(unit.context) }
    state.unit = nil
    if let writing = state.writing {
      if let place = try? writing.place() {
        container.slabs.discard(writing.unit.runs(in: place).map(\.extent))
      }
      container.giveBack(writing.unit.context)
    }
    state.writing = nil
    if state.expectedByteCount > 0 { container.slabs.endExpecting(state.expectedByteCount) }
    state.manifest = Manifest(message)
    state.staged = []
    container.arrivals.end(key)
  }
}
