import EncryptedFile
import SodiumPrimitives

/// An immutable table of the catalog, read block by block (CONTAINER-FORMAT.md, "Tables").
///
/// Opening reads only the footer; where that is lost, the index blocks are searched for, which tell the same. What is in a block
/// that is whole in neither copy throws `tableDamaged`: everything, where the footer and an index block are.
final class TableFile: Sendable {
  let table: Generation.Table
  /// The totals in the footer; nil where the footer is lost.
  let counts: Counts?
  private let file: CopiedFile
  private let blocks: SealedBlocks
  private let cache: BlockCache
  private let log: FindingLog
  private let indexBlocks: [Table.BlockPointer]
  private let footer: Table.BlockPointer
  /// Why nothing of the table can be had, where that is so.
  let loss: (any Error)?

  struct Counts: Equatable {
    var entries: UInt64
    var dataBlocks: UInt64
  }

  /// Opens a table. Throws `tableDamaged` for one that is shorter than its footer.
  init(
    _ table: Generation.Table, io: any BlockIO, container: Identifier, key: SharedKey, ciphers: CipherPool,
    cache: BlockCache, log: FindingLog
  ) throws {
    let overhead = UInt64(SecretStreamCipher.overheadByteCount)
    guard UInt64(table.footerLength) + overhead <= table.byteCount else {
      throw ContainerError(.tableDamaged, detail: "a table shorter than its footer")
    }
    let footer = Table.BlockPointer(
      offset: table.byteCount - overhead - UInt64(table.footerLength), length: table.footerLength,
      firstKey: CatalogKey(bytes: []))
    let file = CopiedFile(io, table.id, in: .catalog)
    let blocks = SealedBlocks(
      table: table, place: Table.Place(container: container, table: table.id), key: key, ciphers: ciphers)
    (self.table, self.footer, self.file, self.blocks) = (table, footer, file, blocks)
    (self.cache, self.log) = (cache, log)
    do {
      (counts, indexBlocks) = try Self.whole(footer, in: file, log) { try blocks.footer(footer, of: $0) }
      loss = nil
    } catch  where error is MalformedBytes || Self.isLoss(error) {
      let (found, refusal) = try blocks.indexBlocks(before: footer.offset, in: file)
      (counts, indexBlocks) = (nil, found ?? [])
      // A block that the system does not read may be whole.
      loss = found == nil ? refusal ?? Self.thrown(error) : nil
      log.add(loss.map(Self.finding) ?? Self.footerDamaged(error))
    }
  }

  private static func footerDamaged(_ error: any Error) -> Finding {
    let reason = (error as? MalformedBytes)?.what ?? "\(error)"
    return Finding(.damage, .copyDamaged, "\(reason); it is the footer, and other blocks tell what it told")
  }

  deinit { cache.forget(table: table.id) }

  // MARK: Blocks

  /// The result of `read` for the first copy. If that throws, the result for the second copy, and
  /// the damage is logged. When the block is whole in neither copy, throws `MalformedBytes`, or the
  /// failure if the system does not read one of them: what is stored may be whole.
  private static func whole<R>(
    _ pointer: Table.BlockPointer, in file: CopiedFile, _ log: FindingLog, _ read: (any BlockFile) throws -> R
  ) throws -> R {
    var losses: [Loss] = []
    for copy in 0..<CopiedFile.count {
      do {
        let result = try read(file.copy(copy))
        if copy > 0 { log.add(copyDamaged(file.names[0], at: pointer.offset)) }
        return result
      } catch {
        losses.append(try Loss(error))
      }
    }
    if let refusal = Loss.refusal(losses) { throw refusal }
    throw MalformedBytes(what: Loss.text(of: losses, at: pointer.offset))
  }

  /// The reason why a copy does not have a block.
  private struct Loss {
    let reason: String
    /// The failure of the system to read it; nil when the bytes are wrong or missing.
    var refusal: IOFailure?

    /// Throws a failure that says nothing of the copy.
    init(_ error: any Error) throws(IOFailure) {
      guard let failure = error as? IOFailure else {
        reason = (error as? MalformedBytes)?.what ?? "it does not open"
        return
      }
      guard failure.isOfFile else { throw failure }
      let isAbsent = absentFile.contains(failure.errno)
      reason = isAbsent ? "the file is missing" : failure.description
      if !isAbsent { refusal = failure }
    }

    static func refusal(_ losses: [Loss]) -> IOFailure? {
      let refusals = losses.compactMap(\.refusal)
      guard let first = refusals.first else { return nil }
      let names = refusals.map(\.file).joined(separator: " and ")
      return IOFailure(first.operation, names, errno: first.errno)
    }

    static func text(of losses: [Loss], at offset: UInt64) -> String {
      let reasons = losses.map(\.reason)
      let text = reasons[0] == reasons[1] ? reasons[0] : reasons.joined(separator: "; ")
      return "the block at byte \(offset) of a table is whole in neither copy (\(text))"
    }
  }

  /// Whether an error says that a block of a table cannot be had.
  static func isLoss(_ error: any Error) -> Bool {
    if let failure = error as? IOFailure { return failure.isOfFile && failure.isReading }
    return (error as? ContainerError)?.code == .tableDamaged
  }

  /// The finding for a block that cannot be had.
  static func finding(_ error: any Error) -> Finding {
    if let failure = error as? IOFailure { return Finding(.damage, .unreadable, failure.description) }
    let lost = (error as? MalformedBytes)?.what ?? (error as? ContainerError)?.detail
    return Finding(.damage, .tableDamaged, lost ?? "")
  }

  private static func copyDamaged(_ name: String, at offset: UInt64) -> Finding {
    Finding(
      .damage, .copyDamaged, "the block at byte \(offset) of \(name) is damaged; the other copy is whole")
  }

  private func load(
    _ pointer: Table.BlockPointer, _ kind: Table.BlockKind, from copy: any BlockFile
  ) throws -> TableBlock {
    var plaintext = try blocks.open(pointer, kind, of: copy)
    defer { plaintext.withUnsafeMutableBytes { wipe($0) } }
    return try TableBlock(plaintext, kind: kind, firstKey: pointer.firstKey)
  }

  /// Reads a block, through the cache if `cached`. Throws `tableDamaged` when it is whole in
  /// neither copy.
  fileprivate func block(
    _ pointer: Table.BlockPointer, _ kind: Table.BlockKind, cached: Bool = true
  ) throws -> TableBlock {
    func load() throws -> TableBlock {
      try Self.whole(pointer, in: file, log) { try self.load(pointer, kind, from: $0) }
    }
    do {
      guard cached else { return try load() }
      return try cache.block(at: BlockCache.Place(table: table.id, offset: pointer.offset), load: load)
    } catch {
      throw Self.thrown(error)
    }
  }

  /// The error for a block that is whole in neither copy.
  private static func thrown(_ error: any Error) -> any Error {
    (error as? MalformedBytes).map { ContainerError(.tableDamaged, detail: $0.what) } ?? error
  }

  // MARK: Looking up

  enum Found {
    case absent
    case deleted
    case value([UInt8])
  }

  func find(_ key: CatalogKey) throws -> Found {
    guard let data = try dataBlock(for: key) else { return .absent }
    return Self.find(key, in: data)
  }

  /// Finds keys in ascending order: searches the block of the previous key first.
  struct Finder {
    private let table: TableFile
    private var data: TableBlock?

    init(_ table: TableFile) { self.table = table }

    mutating func find(_ key: CatalogKey) throws -> Found {
      if data?.spans(key) != true { data = try table.dataBlock(for: key) }
      guard let data else { return .absent }
      return TableFile.find(key, in: data)
    }
  }

  private static func find(_ key: CatalogKey, in data: TableBlock) -> Found {
    let (entry, isThere) = data.search(key)
    guard isThere else { return .absent }
    return data.value(entry).map(Found.value) ?? .deleted
  }

  /// The data block that has the key, if the table has it.
  private func dataBlock(for key: CatalogKey) throws -> TableBlock? {
    if let loss { throw loss }
    guard let index = Self.last(notAfter: key, in: indexBlocks) else { return nil }
    let pointers = try block(indexBlocks[index], .index)
    let (position, found) = pointers.search(key)
    guard found || position > 0 else { return nil }
    return try block(pointers.pointer(found ? position : position - 1), .data)
  }

  private static func last(notAfter key: CatalogKey, in pointers: [Table.BlockPointer]) -> Int? {
    var low = 0
    var high = pointers.count
    while low < high {
      let middle = (low + high) / 2
      if key < pointers[middle].firstKey { high = middle } else { low = middle + 1 }
    }
    return low == 0 ? nil : low - 1
  }

  /// A position among the entries.
  struct Position {
    fileprivate let mode: ReadMode
    fileprivate var index: Int
    fileprivate var pointers: TableBlock?
    fileprivate var pointer = 0
    fileprivate var data: TableBlock?
    fileprivate var entry = 0
    /// What was lost since it was last taken: neighbours in one.
    fileprivate var lost: LostRange?

    mutating func takeLost() -> LostRange? {
      defer { lost = nil }
      return lost
    }

    fileprivate mutating func lose(_ range: LostRange) {
      lost = LostRange(lower: lost?.lower ?? range.lower, upper: range.upper)
    }
  }

  /// The keys that a lost block may have: what older tables have of them does not count.
  struct LostRange {
    fileprivate let lower: CatalogKey
    /// The first key of what follows; nil at the end of the table.
    fileprivate let upper: CatalogKey?

    func contains(_ key: CatalogKey) -> Bool { lower <= key && !isBefore(key) }
    func isBefore(_ key: CatalogKey) -> Bool { upper.map { $0 <= key } ?? false }
    /// Whether keys from `begin` to before `end` may be in it.
    func overlaps(_ begin: CatalogKey, _ end: CatalogKey) -> Bool { lower < end && !isBefore(begin) }
  }

  private func lostRange(index: Int) -> LostRange {
    LostRange(
      lower: indexBlocks[index].firstKey,
      upper: index + 1 < indexBlocks.count ? indexBlocks[index + 1].firstKey : nil)
  }

  private func lostRange(_ pointer: Int, in pointers: TableBlock, index: Int) -> LostRange {
    LostRange(
      lower: pointers.pointer(pointer).firstKey,
      upper: pointer + 1 < pointers.count
        ? pointers.pointer(pointer + 1).firstKey : lostRange(index: index).upper)
  }

  enum ReadMode {
    case cached
    /// Bypasses the cache, to read everything once.
    case uncached
    /// Bypasses the cache, and skips lost blocks, which are logged, and what they may have held.
    case salvaging
  }

  private func block(
    _ pointer: Table.BlockPointer, _ kind: Table.BlockKind, _ mode: ReadMode
  ) throws -> TableBlock? {
    do {
      return try block(pointer, kind, cached: mode == .cached)
    } catch  where mode == .salvaging && Self.isLoss(error) {
      log.add(Self.finding(error))
      return nil
    }
  }

  /// The position of the first entry whose key is not before `key`.
  func position(of key: CatalogKey, _ mode: ReadMode = .cached) throws -> Position {
    if let loss {
      guard mode == .salvaging else { throw loss }
      return Position(mode: mode, index: 0, lost: LostRange(lower: CatalogKey(bytes: []), upper: nil))
    }
    guard let index = Self.last(notAfter: key, in: indexBlocks) else {
      return Position(mode: mode, index: 0)
    }
    guard let pointers = try block(indexBlocks[index], .index, mode) else {
      return Position(mode: mode, index: index + 1, lost: lostRange(index: index))
    }
    let (position, found) = pointers.search(key)
    let pointer = found || position == 0 ? position : position - 1
    guard let data = try block(pointers.pointer(pointer), .data, mode) else {
      return Position(
        mode: mode, index: index, pointers: pointers, pointer: pointer + 1,
        lost: lostRange(pointer, in: pointers, index: index))
    }
    return Position(
      mode: mode, index: index, pointers: pointers, pointer: pointer, data: data,
      entry: data.search(key).position)
  }

  /// The entry at the position, which then advances to the next one; nil at the end. A nil value is
  /// a tombstone.
  func next(_ position: inout Position) throws -> (key: CatalogKey, value: [UInt8]?)? {
    while true {
      if let data = position.data {
        if position.entry < data.count {
          defer { position.entry += 1 }
          return (data.key(position.entry), data.value(position.entry))
        }
        position.data = nil
        position.pointer += 1
      }
      if let pointers = position.pointers {
        if position.pointer < pointers.count {
          position.entry = 0
          position.data = try block(pointers.pointer(position.pointer), .data, position.mode)
          if position.data == nil {
            position.lose(lostRange(position.pointer, in: pointers, index: position.index))
            position.pointer += 1
          }
          continue
        }
        position = Position(mode: position.mode, index: position.index + 1, lost: position.lost)
      }
      guard position.index < indexBlocks.count else { return nil }
      position.pointers = try block(indexBlocks[position.index], .index, position.mode)
      if position.pointers == nil {
        position.lose(lostRange(index: position.index))
        position.index += 1
      }
    }
  }

  // MARK: The whole table

  /// The damage of a table.
  struct Check {
    /// Blocks that are whole in one copy only: the damaged copy and the offset.
    var damaged: [(copy: Int, offset: UInt64)] = []
    /// Blocks that are whole in no copy.
    var lost: [Finding] = []
    /// Rules that the blocks violate together.
    var contradictions: [String] = []
    /// The same, with where the block is whole.
    var uneven: [UnevenRecord] = []
    /// Copies that cannot be had or have another length, with what is wrong.
    var misfits: [(copy: Int, reason: String)] = []
    /// Why the system does not read one of the copies, the first time.
    var refusal: IOFailure?

    var isWhole: Bool { damaged.isEmpty && lost.isEmpty && contradictions.isEmpty && misfits.isEmpty }
  }

  /// Opens every block of both copies, bypassing the cache. The oldest table of a generation has no
  /// tombstones.
  func check(isOldest: Bool) throws(IOFailure) -> Check {
    var check = Check()
    if let loss {
      check.lost.append(Self.finding(loss))
      check.refusal = loss as? IOFailure
      return check
    }
    for i in 0..<CopiedFile.count {
      do throws(IOFailure) {
        guard try file.copy(i).size() != table.byteCount else { continue }
        check.misfits.append((i, "\(file.names[i]) has another length"))
      } catch {
        guard error.isOfFile else { throw error }
        check.refusal = check.refusal ?? error
        let isMissing = error.errno == missingFile
        check.misfits.append((i, isMissing ? "\(file.names[i]) is missing" : "\(error)"))
      }
    }
    let overhead = UInt64(SecretStreamCipher.overheadByteCount)
    var seen = Counts(entries: 0, dataBlocks: 0)
    var last: CatalogKey?
    var dataEnd: UInt64 = 0
    let indexOffset = indexBlocks.first?.offset ?? footer.offset
    for pointer in indexBlocks {
      guard let pointers = try blockOfBoth(pointer, .index, &check) else { continue }
      for i in 0..<pointers.count {
        let data = pointers.pointer(i)
        if data.offset != dataEnd || data.offset >= indexOffset {
          check.contradictions.append("data blocks with gaps")
        }
        dataEnd = data.offset &+ UInt64(data.length) + overhead
        seen.dataBlocks += 1
        guard let block = try blockOfBoth(data, .data, &check) else { continue }
        if let last, block.key(0) <= last { check.contradictions.append("a table out of order") }
        last = block.key(block.count - 1)
        seen.entries += UInt64(block.count)
        if isOldest, (0..<block.count).contains(where: { block.value($0) == nil }) {
          check.contradictions.append("a tombstone in the oldest table")
        }
      }
    }
    // Counts are meaningless when some of the counted blocks are lost.
    if check.lost.isEmpty, dataEnd != indexOffset || counts ?? seen != seen {
      check.contradictions.append("a table with other counts than its footer says")
    }
    _ = try blockOfBoth(footer, .footer, &check)
    return check
  }

  /// The block from a copy that has it whole; nil, and recorded in `check`, when neither has. Also
  /// nil for a footer, which has no entries.
  private func blockOfBoth(
    _ pointer: Table.BlockPointer, _ kind: Table.BlockKind, _ check: inout Check
  ) throws(IOFailure) -> TableBlock? {
    var whole: TableBlock?
    var damaged: [Int] = []
    var losses: [Loss] = []
    for i in 0..<CopiedFile.count {
      do {
        let copy = try file.copy(i)
        if kind == .footer {
          _ = try blocks.footer(pointer, of: copy)
        } else {
          whole = try load(pointer, kind, from: copy)
        }
      } catch {
        losses.append(try Loss(error))
        damaged.append(i)
      }
    }
    check.refusal = check.refusal ?? Loss.refusal(losses)
    if damaged.count == CopiedFile.count {
      let error: any Error =
        Loss.refusal(losses) ?? MalformedBytes(what: Loss.text(of: losses, at: pointer.offset))
      check.lost.append(kind == .footer ? Self.footerDamaged(error) : Self.finding(error))
    }
    if damaged.count == 1 {
      check.damaged.append((damaged[0], pointer.offset))
      let end = pointer.offset + UInt64(pointer.length) + UInt64(SecretStreamCipher.overheadByteCount)
      check.uneven.append(
        UnevenRecord(
          whole: file.names[1 - damaged[0]], torn: file.names[damaged[0]], range: pointer.offset..<end))
    }
    return whole
  }

  /// Logs the results of a check.
  func report(_ check: Check) {
    for (_, reason) in check.misfits { log.add(Finding(.damage, .copyDamaged, reason)) }
    for (copy, offset) in check.damaged where !check.misfits.contains(where: { $0.copy == copy }) {
      log.add(Self.copyDamaged(file.names[copy], at: offset))
    }
    for finding in check.lost { log.add(finding) }
    for contradiction in Set(check.contradictions).sorted() {
      log.add(Finding(.damage, .catalogInconsistent, contradiction))
    }
  }
}

/// The sealed blocks of a table, opened one by one from a copy.
private struct SealedBlocks: Sendable {
  let table: Generation.Table
  let place: Table.Place
  let key: SharedKey
  let ciphers: CipherPool

  func open(
    _ pointer: Table.BlockPointer, _ kind: Table.BlockKind, of file: any BlockFile
  ) throws -> [UInt8] {
    let overhead = UInt64(SecretStreamCipher.overheadByteCount)
    let count = Int(pointer.length)
    let countMax = kind == .footer ? Table.footerByteCountMax : Table.blockByteCountMax
    guard count >= 1, count <= countMax, pointer.offset <= table.byteCount,
      UInt64(count) + overhead <= table.byteCount - pointer.offset
    else { throw MalformedBytes(what: "a block outside its table") }
    let sealed = try file.read(count + Int(overhead), at: pointer.offset)
    let ad = Table.ad(place, offset: pointer.offset, count: count, kind: kind)
    guard kind != .footer || Array(sealed.suffix(16)) == table.footerTag else {
      throw MalformedBytes(what: "it is not authentic")
    }
    do throws(CryptoError) {
      return try ciphers.withCipher { cipher throws(CryptoError) in
        try SealedMessage.open(sealed, key: key.key, ad: ad, cipher: cipher)
      }
    } catch {
      throw IOFailure(error) ?? MalformedBytes(what: "it is not authentic")
    }
  }

  func footer(
    _ pointer: Table.BlockPointer, of file: any BlockFile
  ) throws -> (counts: TableFile.Counts, indexBlocks: [Table.BlockPointer]) {
    var reader = ByteReader(try open(pointer, .footer, of: file))
    let counts = TableFile.Counts(entries: try reader.read(), dataBlocks: try reader.read())
    let indexBlockCount = try reader.read(UInt32.self)
    try reader.zeros(4)
    var pointers: [Table.BlockPointer] = []
    for _ in 0..<indexBlockCount {
      let pointer = try Table.BlockPointer(&reader)
      if let last = pointers.last {
        guard pointer.offset == last.end, last.firstKey < pointer.firstKey else {
          throw MalformedBytes(what: "index blocks with gaps")
        }
      }
      pointers.append(pointer)
    }
    try reader.end()
    guard pointers.last?.end ?? 0 == pointer.offset else {
      throw MalformedBytes(what: "a gap before the footer")
    }
    return (counts, pointers)
  }

  /// The index blocks, found without the footer: the last one ends where the footer begins, each other where the next one begins, and the
  /// length is the one with which it opens. Nil when one is whole in neither copy, with the failure if the system does not read all of them.
  func indexBlocks(
    before footer: UInt64, in file: CopiedFile
  ) throws -> (found: [Table.BlockPointer]?, refusal: IOFailure?) {
    guard footer > 0 else { return ([], nil) }
    var pointers: [Table.BlockPointer] = []
    var isFirst = false
    while !isFirst {
      let end = pointers.last?.offset ?? footer
      var found: (block: TableBlock, pointer: Table.BlockPointer)?
      var refusal: IOFailure?
      for copy in 0..<CopiedFile.count where found == nil {
        do { found = try indexBlock(endingAt: end, of: file.copy(copy), &refusal) } catch let failure
          as IOFailure
          where failure.isOfFile
        {
          if !absentFile.contains(failure.errno) { refusal = failure }
        }
      }
      guard let found else { return (nil, refusal) }
      pointers.append(found.pointer)
      isFirst = found.block.pointer(0).offset == 0
    }
    return (pointers.reversed(), nil)
  }

  private func indexBlock(
    endingAt end: UInt64, of file: any BlockFile, _ refusal: inout IOFailure?
  ) throws -> (block: TableBlock, pointer: Table.BlockPointer)? {
    let overhead = SecretStreamCipher.overheadByteCount
    let stored = try Self.bytes(
      before: end, atMost: Table.blockByteCountMax + overhead, of: file, &refusal)
    let countMax = stored.count - overhead
    guard countMax >= 1 else { return nil }
    return try ciphers.withCipher { cipher in
      for count in 1...countMax {
        let offset = end - UInt64(count + overhead)
        let ad = Table.ad(place, offset: offset, count: count, kind: .index)
        var plaintext: [UInt8]
        do throws(CryptoError) {
          plaintext = try SealedMessage.open(
            Array(stored.suffix(count + overhead)), key: key.key, ad: ad, cipher: cipher)
        } catch {
          if let failure = IOFailure(error) { throw failure }
          continue
        }
        defer { plaintext.withUnsafeMutableBytes { wipe($0) } }
        guard let block = try? TableBlock(plaintext, kind: .index) else { return nil }
        return (block, Table.BlockPointer(offset: offset, length: UInt32(count), firstKey: block.key(0)))
      }
      return nil
    }
  }

  /// The bytes before a place, page by page, back to the first page that the system does not read: it may belong to another block. None
  /// where the copy is shorter.
  private static func bytes(
    before end: UInt64, atMost count: Int, of file: any BlockFile, _ refusal: inout IOFailure?
  ) throws(IOFailure) -> [UInt8] {
    var pages: [[UInt8]] = []
    var begin = end
    let first = end - min(end, UInt64(count))
    while begin > first {
      let next = max(first, (begin - 1) / 4096 * 4096)
      do throws(IOFailure) {
        let page = try file.read(Int(begin - next), at: next)
        guard page.count == Int(begin - next) else { return [] }
        pages.append(page)
      } catch {
        guard error.isOfFile else { throw error }
        refusal = error
        break
      }
      begin = next
    }
    return Array(pages.reversed().joined())
  }
}
