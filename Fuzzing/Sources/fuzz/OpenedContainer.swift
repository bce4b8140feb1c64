import EncryptedFile
import SodiumPrimitives

@testable import ContainerStore
@testable import OpenDynamicsTesting

extension SampleContainer {
  /// Changes plaintext of the image, and seals it again with all that depends on it.
  func applySealed(_ kind: UInt8, _ input: inout Input, to image: inout DiskImage) throws {
    guard var opened = try? OpenedContainer(image, credential: credential()) else { return }
    switch kind {
    case 0, 1:
      var body = try opened.body.encoded
      Edit(&input).apply(to: &body)
      // What the parser refuses is the matter of the target `superblock-body`.
      guard let body = try? SuperblockBody(body) else { return }
      opened.body = body
      if kind == 1 { opened.leaveOpen() }
      try opened.sealSuperblock(to: &image)
    case 2, 3:
      guard !opened.payloads.isEmpty else { return }
      let index = Int(input.byte()) % opened.payloads.count
      Edit(&input).apply(to: &opened.payloads[index])
      try opened.sealJournal(to: &image)
    default:
      opened.append(&input)
      try opened.sealJournal(to: &image)
    }
  }
}

/// What stands in clear in an image: the superblock's body and the newest journal.
struct OpenedContainer {
  private final class RootKey {
    let key: SecretKey
    init(_ key: consuming SecretKey) { self.key = key }
  }

  private let slot: SuperblockSlot
  private let root: RootKey
  private let cipher = SecretStreamCipher()
  var body: SuperblockBody
  /// Of the newest journal's frames.
  var payloads: [[UInt8]] = []
  /// After the journal's header.
  private var headerEnd: JournalEnd?

  init(_ image: DiskImage, credential: borrowing Credential) throws {
    let io = RecordingIO(image)
    (slot, _) = try Superblock.choose(try io.open("superblock", .read), writerIsAlive: false)
    root = RootKey(
      try Superblock.rootKey(slot, credential: credential, options: Container.Options(), in: .shared))
    body = try slot.open(rootKey: root.key)
    guard let journal = body.journal else { return }
    let file = try CopiedFile(io, journal.id, in: .journal).copy(0)
    let key = try Keyring(container: slot.containerID, body: body).journalKey(
      journal.id, generation: journal.generation)
    var offset: UInt64 = 0
    while case .good(_, _, let payload, let tag, let end) = try JournalFrame.read(
      file, at: offset, place: .init(container: slot.containerID, journal: journal.id), key: key,
      cipher: cipher)
    {
      if payloads.isEmpty, let header = try? JournalHeader(payload) {
        headerEnd = JournalEnd(record: 0, offset: end, tag: tag, commit: header.commit)
      }
      payloads.append(payload)
      offset = JournalFrame.alignedUp(end)
    }
  }

  private var records: [JournalRecord] {
    payloads.dropFirst().compactMap { try? JournalRecord($0, number: .max) }
  }

  /// As after a crash, with nothing proven but the journal's header.
  mutating func leaveOpen() {
    guard body.journal != nil, let headerEnd else { return }
    body.isClean = false
    body.journal!.knownEnd = headerEnd
  }

  /// Appends a commit of one to four changes of what is there: its value edited, removed, replaced, its key edited or new.
  mutating func append(_ input: inout Input) {
    let present = records.flatMap(\.changes).filter { $0.value != nil }
    guard let last = records.last, !present.isEmpty else { return }
    let flags = input.byte()
    var changes: [CatalogChange] = []
    for _ in 0...(flags & 3) {
      var change = present[Int(input.byte()) % present.count]
      switch input.byte() & 7 {
      case 0, 1, 2: Edit(&input).apply(to: &change.value!)
      case 3: change.value = nil
      case 4: change.value = input.piece()
      case 5, 6:
        var key = change.key.bytes
        Edit(&input).apply(to: &key)
        change.key = CatalogKey(bytes: key)
      default: change = CatalogChange(key: CatalogKey(bytes: input.piece()), value: input.piece())
      }
      changes.append(change)
    }
    payloads.append(
      JournalRecord(
        commit: last.commit &+ 1, durableThrough: 0, time: 0, isLastOfCommit: flags & 4 == 0,
        segmentsWereDurable: flags & 8 == 0, changes: changes
      ).encoded)
    if flags & 16 != 0 { leaveOpen() }
  }

  /// Writes the journal with ``payloads``, and the superblock with its end.
  mutating func sealJournal(to image: inout DiskImage) throws {
    guard let journal = body.journal else { return }
    let key = try Keyring(container: slot.containerID, body: body).journalKey(
      journal.id, generation: journal.generation)
    var file: [UInt8] = []
    var end = JournalEnd(
      record: 0, offset: 0, tag: noTag, commit: records.last?.commit ?? 0)
    for (number, payload) in payloads.enumerated() where !payload.isEmpty {
      let offset = JournalFrame.alignedUp(UInt64(file.count))
      file += [UInt8](repeating: 0, count: Int(offset) - file.count)
      let (frame, tag) = try JournalFrame.seal(
        payload, number: UInt64(number), previous: end.tag,
        at: .init(container: slot.containerID, journal: journal.id), key: key, cipher: cipher)
      file += frame
      end.record = UInt64(number)
      end.offset = UInt64(file.count)
      end.tag = tag
    }
    for name in CopiedFile.names(journal.id, in: .journal) {
      if let inode = image.names[name] { image.contents[inode] = file }
    }
    if body.isClean { body.journal!.knownEnd = end }
    try sealSuperblock(to: &image)
  }

  func sealSuperblock(to image: inout DiskImage) throws {
    let sealed = try SuperblockSlot.make(
      containerID: slot.containerID, sequence: slot.sequence &+ 1, keySlots: slot.keySlots, body: body,
      rootKey: root.key)
    guard let inode = image.names["superblock"] else { return }
    for offset in SuperblockSlot.offsets {
      DiskImage.write(sealed.bytes, at: Int(offset), to: &image.contents[inode]!)
    }
  }
}
