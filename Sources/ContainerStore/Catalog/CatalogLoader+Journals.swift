import EncryptedFile
import SodiumPrimitives

/// Replay of the journals over the tables (CONTAINER-FORMAT.md, "Replaying").
extension CatalogLoader {
  private struct Link {
    var reader: JournalReader
    var generation: UInt64
    var header: JournalHeader
    var headerEnd: JournalEnd
    var knownEnd: JournalEnd
    /// Whether the journal ends at the known end: records after it do not count.
    var endsThere: Bool
  }

  func reader(_ id: Identifier, generation: UInt64) throws -> JournalReader {
    try JournalReader(io, id, generation: generation, container: container, keys: keys, cipher: cipher)
  }

  /// The journals that the generations need, newest first.
  func journals() throws -> [Identifier] { try openJournals().map(\.reader.id) }

  func replayJournals(into catalog: inout LoadedCatalog) throws {
    let links: [Link]
    do { links = try openJournals() } catch let error as ContainerError where canSalvage(error) {
      log.add(Finding(.damage, .journalDamaged, error.detail ?? ""))
      freezeIfPending(&catalog)
      return
    }
    catalog.journals = links.map { ($0.reader.id, $0.generation) }
    let pending = body.generations.first { $0.state == .pending }?.number
    var applied: Set<Identifier> = []
    for link in links.reversed() {
      if link.generation == pending { freezeIfPending(&catalog) }
      guard link.header.commit == catalog.commit else {
        throw ContainerError(
          .journalDamaged, detail: "it begins after commit \(link.header.commit), expected \(catalog.commit)")
      }
      var replay = Replay(link)
      do {
        try advance(&replay, into: &catalog)
      } catch let error as ContainerError where canSalvage(error) {
        // Later commits build on the lost ones.
        log.add(Finding(.damage, .journalDamaged, error.detail ?? ""))
        catalog.add(link.reader.id, link.generation, replay.accepted)
        catalog.journals.removeAll { $0.id != link.reader.id && !applied.contains($0.id) }
        freezeIfPending(&catalog)
        return
      }
      catalog.add(link.reader.id, link.generation, replay.accepted)
      applied.insert(link.reader.id)
    }
    guard let current = links.first, !body.isClean, !writerIsAlive else { return }
    log.add(
      Finding(
        .note, .notClosed,
        "the container was not closed; commits up to \(catalog.commit) were found, and the superblock knows of "
          + "those up to \(current.knownEnd.commit): of later ones, the last may be missing"))
  }

  /// Freezes the changes so far when a checkpoint was under way, which then continues with them.
  private func freezeIfPending(_ catalog: inout LoadedCatalog) {
    guard catalog.frozenCommit == nil, body.generations.contains(where: { $0.state == .pending }) else {
      return
    }
    catalog.snapshot.frozen = catalog.snapshot.overlay
    catalog.snapshot.overlay = ChangeMap()
    catalog.frozenCommit = catalog.commit
    catalog.overlayByteCount = 0
  }

  private func canSalvage(_ error: ContainerError) -> Bool {
    salvages && (error.code == .journalDamaged || error.code == .journalAltered)
  }

  /// The journals, newest first.
  private func openJournals() throws -> [Link] {
    let oldest = body.completeGeneration.number
    guard var next = body.journal else { return [] }
    var endsThere = body.isClean
    var links: [Link] = []
    guard next.generation >= oldest else {
      throw ContainerError(.journalAltered, detail: "it belongs to a generation that is gone")
    }
    while true {
      guard !links.contains(where: { $0.reader.id == next.id }) else {
        throw ContainerError(.journalAltered, detail: "journals name one another in a circle")
      }
      let reader = try reader(next.id, generation: next.generation)
      let (header, headerEnd) = try header(reader, generation: next.generation)
      links.append(
        Link(
          reader: reader, generation: next.generation, header: header, headerEnd: headerEnd,
          knownEnd: next.knownEnd, endsThere: endsThere))
      guard let predecessor = header.predecessor else { return links }
      guard predecessor.generation <= next.generation else {
        throw ContainerError(
          .journalDamaged, detail: "a journal of an older generation than the one before it")
      }
      guard predecessor.generation >= oldest else { return links }
      next = SuperblockBody.Journal(
        id: predecessor.id, generation: predecessor.generation, knownEnd: predecessor.end)
      endsThere = true
    }
  }

  private func header(
    _ reader: JournalReader, generation: UInt64
  ) throws -> (header: JournalHeader, end: JournalEnd) {
    switch try reader.read(after: nil, readsBoth: readsBothCopies) {
    case .good(let payload, var end, let damagedCopies):
      let header: JournalHeader
      do { header = try JournalHeader(payload) } catch {
        throw ContainerError(.journalDamaged, detail: error.what)
      }
      guard header.generation == generation else {
        throw ContainerError(.journalDamaged, detail: "a journal of another generation")
      }
      for copy in damagedCopies { report(damaged: copy, of: reader, record: 0) }
      end.commit = header.commit
      return (header, end)
    case .torn(let reason), .refused(let reason):
      throw ContainerError(.journalDamaged, detail: "its header: \(reason)")
    case .altered: throw ContainerError(.journalAltered, detail: "its header is not authentic")
    }
  }

  private func report(damaged copy: Int, of reader: JournalReader, record: UInt64) {
    log.add(
      Finding(
        .damage, .copyDamaged,
        "record \(record) of \(reader.file.names[copy]) is damaged; the other copy is whole"))
  }

  // MARK: Records

  /// The progress of reading one journal.
  private struct Replay {
    let link: Link
    /// The last record that was read.
    var last: JournalEnd
    /// The end of the last complete commit.
    var accepted: JournalEnd
    var commit = PendingCommit()

    init(_ link: Link) {
      self.link = link
      last = link.headerEnd
      accepted = link.headerEnd
    }
  }

  private struct Tail {
    var record: JournalRecord
    /// The offset at which the record's frame begins.
    var offset: UInt64
    var end: JournalEnd
    var damagedCopies: [Int]
  }

  /// Applies the commits up to the known end, and those that may follow it.
  private func advance(_ replay: inout Replay, into catalog: inout LoadedCatalog) throws {
    let known = replay.link.knownEnd
    while replay.last.record < known.record {
      let number = replay.last.record + 1
      switch try next(after: replay.last, in: replay.link) {
      case .record(let found):
        for copy in found.damagedCopies { report(damaged: copy, of: replay.link.reader, record: number) }
        replay.last = found.end
        guard let finished = try replay.commit.add(found.record, after: catalog.commit) else { continue }
        catalog.apply(finished)
        replay.accepted = found.end
      case .torn(let reason), .refused(let reason):
        throw ContainerError(.journalDamaged, detail: "record \(number): \(reason)")
      case .altered:
        throw ContainerError(.journalAltered, detail: "record \(number) is not authentic")
      }
    }
    guard replay.last.record == known.record, replay.last.tag == known.tag,
      replay.last.offset == known.offset, replay.commit.isEmpty, catalog.commit == known.commit
    else { throw ContainerError(.journalAltered, detail: "it does not end as it should") }
    if !replay.link.endsThere { try advancePastKnownEnd(&replay, into: &catalog) }
  }

  private func advancePastKnownEnd(_ replay: inout Replay, into catalog: inout LoadedCatalog) throws {
    let reader = replay.link.reader
    var tail: [Tail] = []
    var proven: UInt64 = 0
    var stop: String?
    scan: while true {
      let bad = replay.last.record + 1
      switch try next(after: replay.last, in: replay.link) {
      case .record(let found):
        tail.append(found)
        replay.last = found.end
      case .torn(let reason):
        proven = try reader.provenRecord(after: replay.last)
        if proven >= bad {
          // A living writer may have written this record, and later ones, since the first attempt.
          if writerIsAlive, case .record(let found) = try next(after: replay.last, in: replay.link) {
            tail.append(found)
            replay.last = found.end
            continue scan
          }
          try apply(tail, proven: proven, to: &replay, into: &catalog)
          throw ContainerError(
            .journalDamaged, detail: "record \(bad): \(reason), and a later record says that it was durable")
        }
        stop = reader.hasBytes(after: replay.last) ? "record \(bad): \(reason)" : nil
        // No crash takes a copy away: what was behind the last record of the other is lost with it.
        for failure in try reader.absentCopies() {
          log.add(Finding(.damage, .copyDamaged, "\(failure); the last records may have been in it"))
        }
        break scan
      case .refused(let reason):
        try apply(tail, proven: 0, to: &replay, into: &catalog)
        throw ContainerError(.journalDamaged, detail: "record \(bad): \(reason)")
      case .altered:
        try apply(tail, proven: 0, to: &replay, into: &catalog)
        throw ContainerError(.journalAltered, detail: "record \(bad) is not authentic")
      }
    }
    stop = try apply(tail, proven: proven, to: &replay, into: &catalog) ?? stop
    if let stop, !writerIsAlive {
      log.add(
        Finding(.note, .tornTail, "dropped what was under way when the container was not closed (\(stop))"))
    }
  }

  /// Applies the complete commits among the records after the known end. `proven` is a record that
  /// is known to have been durable. Returns the reason when the last records do not count,
  /// otherwise nil.
  @discardableResult
  private func apply(
    _ tail: [Tail], proven: UInt64, to replay: inout Replay, into catalog: inout LoadedCatalog
  ) throws -> String? {
    let proven = tail.map(\.record.durableThrough).reduce(proven, max)
    for found in tail {
      // The second copy of a record becomes durable later than the first.
      for copy in found.damagedCopies {
        let names = replay.link.reader.file.names
        catalog.unevenRecords.append(
          UnevenRecord(whole: names[1 - copy], torn: names[copy], range: found.offset..<found.end.offset))
        // Beside a living writer, the first copy may have been read in the middle of a write.
        if copy == 0, found.end.record <= proven, !writerIsAlive {
          report(damaged: copy, of: replay.link.reader, record: found.end.record)
        }
      }
      guard let finished = try replay.commit.add(found.record, after: catalog.commit) else { continue }
      // The writer did not sync: the commit counts only if its segments are all there.
      if !finished.segmentsWereDurable, found.end.record > proven, !writerIsAlive,
        try !segmentsOpen(of: finished, on: catalog)
      {
        return "commit \(finished.number) names segments that were lost"
      }
      catalog.apply(finished)
      catalog.slabsToSynchronize.formUnion(finished.extents().map(\.slab))
      replay.accepted = found.end
      replay.accepted.commit = finished.number
    }
    return replay.commit.isEmpty ? nil : "commit \(catalog.commit + 1) is not complete"
  }

  private enum Step {
    case record(Tail)
    case torn(String)
    case refused(String)
    case altered
  }

  private func next(after last: JournalEnd, in link: Link) throws -> Step {
    switch try link.reader.read(after: last, readsBoth: readsBothCopies) {
    case .good(let payload, var end, let damagedCopies):
      do {
        let record = try JournalRecord(payload, number: end.record)
        end.commit = record.commit
        return .record(
          Tail(
            record: record, offset: JournalFrame.alignedUp(last.offset), end: end,
            damagedCopies: damagedCopies))
      } catch {
        throw ContainerError(.journalDamaged, detail: "record \(end.record): \(error.what)")
      }
    case .torn(let reason): return .torn(reason)
    case .refused(let reason): return .refused(reason)
    case .altered: return .altered
    }
  }
}

extension LoadedCatalog {
  fileprivate mutating func add(_ journal: Identifier, _ generation: UInt64, _ accepted: JournalEnd) {
    overlayByteCount += accepted.offset
    end = JournalHeader.Predecessor(id: journal, generation: generation, end: accepted)
  }
}
