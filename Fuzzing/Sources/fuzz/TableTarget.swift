import EncryptedFile
import SodiumPrimitives

@testable import ContainerStore
@testable import OpenDynamicsTesting

extension Target {
  /// A table whose data blocks the input holds in clear: the index and the footer that fit them are made, then edits change
  /// the plaintext of any block, the stored bytes, or what the superblock says, and all of it is sealed.
  ///
  /// Input: number of data blocks (low three bits of a byte), each a u16 length and its plaintext; data blocks in an index block
  /// (low two bits and one more); edits to the end, each a byte for what is edited and an ``Edit``.
  static let table = Target(
    name: "table", inputByteCountMax: 8192,
    seeds: {
      let records = sampleRecords()
      var one = Script()
      one.add(UInt8(1))
      one.addPiece(TableDraft.dataBlock(records))
      one.add(UInt8(0))
      var three = Script()
      three.add(UInt8(3))
      for begin in stride(from: 0, to: 6, by: 2) {
        three.addPiece(TableDraft.dataBlock(Array(records[begin..<(begin + 2)])))
      }
      three.add(UInt8(1))
      return [Seed("empty", []), Seed("one", one.bytes), Seed("three", three.bytes)]
    },
    accepts: { bytes in
      var input = Input(bytes)
      var draft = TableDraft(&input)
      let (stored, entry) = try draft.sealed(try Known.key(), edits: &input)
      guard let read = try? entries(of: entry, stored) else { return false }
      for (before, after) in zip(read, read.dropFirst()) {
        require(before.key < after.key, "a table out of order was accepted")
      }
      for (key, value) in read {
        require((1...CatalogKey.byteCountMax).contains(key.bytes.count), "a key of an impossible length")
        require((value?.count ?? 0) <= CatalogChange.valueByteCountMax, "a value of an impossible length")
      }
      try requireSameWhenWritten(read)
      return true
    })

  private static func entries(
    of entry: Generation.Table, _ stored: [UInt8]
  ) throws -> [(key: CatalogKey, value: [UInt8]?)] {
    let table = try TableFile(
      entry, io: try io(holding: stored), container: Known.container, key: SharedKey(try Known.key()),
      ciphers: CipherPool(.preferred, in: .shared), cache: BlockCache(byteCountMax: 1 << 20),
      log: FindingLog())
    guard try table.check(isOldest: false).isWhole else { throw MalformedBytes(what: "a table") }
    var entries: [(key: CatalogKey, value: [UInt8]?)] = []
    var position = try table.position(of: CatalogKey(bytes: []))
    while let entry = try table.next(&position) { entries.append((entry.key, entry.value)) }
    for (key, value) in entries {
      switch try table.find(key) {
      case .value(let found): require(found == value, "a lookup finds another value")
      case .deleted: require(value == nil, "a lookup finds a tombstone where a value is")
      case .absent: require(false, "a lookup does not find what is there")
      }
    }
    return entries
  }

  /// Both copies of the table, with the same bytes.
  private static func io(holding stored: [UInt8]) throws -> RecordingIO {
    let io = RecordingIO()
    for folder in ["", "catalog", "copy"] { try io.createDirectory(folder) }
    try CopiedFile.create(io, Known.table, in: .catalog).write(stored, at: 0)
    return io
  }

  /// A table of the entries, written and read, has them again.
  private static func requireSameWhenWritten(_ entries: [(key: CatalogKey, value: [UInt8]?)]) throws {
    var rest = entries[...]
    let io = try io(holding: [])
    let file = CopiedFile(io, Known.table, in: .catalog, .readWrite)
    let entry = try Table.write(
      to: file, place: .init(container: Known.container, table: Known.table), key: Known.key(),
      keying: .init(epoch: 1, secret: Known.bytes(32, seed: 5)), cipher: SecretStreamCipher()
    ) { rest.popFirst() }
    let again = try Target.entries(of: entry, file.copy(1).read(Int(entry.byteCount), at: 0))
    require(
      again.map(\.key) == entries.map(\.key) && again.map(\.value) == entries.map(\.value),
      "a table is not what was written")
  }
}

/// Blocks of a table in clear.
private struct TableDraft {
  private struct Block {
    var kind: Table.BlockKind
    var plaintext: [UInt8]
    var offset: Int
  }

  private var blocks: [Block] = []
  private var end = 0

  init(_ input: inout Input) {
    let data = (0..<(input.byte() & 7)).map { _ in input.piece() }
    let perIndexBlock = 1 + Int(input.byte() & 3)
    var pointers = data.map { add($0, .data, firstKey: Self.firstKey(of: $0)) }
    let entryCount = data.reduce(0) { $0 + Self.count(of: $1) }
    var indexPointers: [[UInt8]] = []
    while !pointers.isEmpty {
      let taken = pointers.prefix(perIndexBlock)
      pointers.removeFirst(taken.count)
      var index = Script()
      index.add(UInt32(taken.count))
      for pointer in taken { index.add(pointer) }
      // A pointer is an offset u64, a length u32, and the first key with its length.
      let firstKey = Array(taken.first![14...])
      indexPointers.append(add(index.bytes, .index, firstKey: firstKey))
    }
    var footer = Script()
    footer.add(UInt64(entryCount))
    footer.add(UInt64(data.count))
    footer.add(UInt32(indexPointers.count))
    footer.add(UInt32(0))
    for pointer in indexPointers { footer.add(pointer) }
    _ = add(footer.bytes, .footer, firstKey: [])
  }

  /// The pointer to the block.
  private mutating func add(_ plaintext: [UInt8], _ kind: Table.BlockKind, firstKey: [UInt8]) -> [UInt8] {
    blocks.append(Block(kind: kind, plaintext: plaintext, offset: end))
    var pointer = Script()
    pointer.add(UInt64(end))
    pointer.add(UInt32(plaintext.count))
    pointer.addPiece(firstKey)
    end += plaintext.count + SecretStreamCipher.overheadByteCount
    return pointer.bytes
  }

  mutating func sealed(
    _ key: borrowing SecretKey, edits input: inout Input
  ) throws -> (bytes: [UInt8], entry: Generation.Table) {
    var storedEdits: [Edit] = []
    var entry = Generation.Table(
      id: Known.table, byteCount: UInt64(end), footerLength: UInt32(blocks.last!.plaintext.count),
      footerTag: [], keying: .init(epoch: 1, secret: Known.bytes(32, seed: 5)))
    while !input.isEmpty {
      let what = input.byte()
      let edit = Edit(&input)
      switch what {
      case 0xff: storedEdits.append(edit)
      case 0xfe: entry.footerLength ^= edit.position
      case 0xfd: entry.byteCount ^= UInt64(edit.position)
      default: edit.apply(to: &blocks[Int(what) % blocks.count].plaintext)
      }
    }
    var bytes: [UInt8] = []
    for block in blocks {
      bytes += try SealedMessage.seal(
        block.plaintext, key: key, ad: Self.ad(block), cipher: SecretStreamCipher())
    }
    entry.footerTag = Array(bytes.suffix(16))
    for edit in storedEdits { edit.apply(to: &bytes) }
    return (bytes, entry)
  }

  /// From the format page, since the library keeps its own to itself.
  private static func ad(_ block: Block) -> [UInt8] {
    var ad = Script()
    ad.add(label("OD1-block") + Known.container.bytes + Known.table.bytes)
    ad.add(UInt64(block.offset))
    ad.add(UInt32(block.plaintext.count))
    ad.add([block.kind.rawValue, 0, 0, 0])
    return ad.bytes
  }

  private static func count(of dataBlock: [UInt8]) -> UInt64 {
    var input = Input(dataBlock)
    return UInt64(input.number(UInt32.self))
  }

  private static func firstKey(of dataBlock: [UInt8]) -> [UInt8] {
    var input = Input(Array(dataBlock.dropFirst(5)))
    return input.piece()
  }

  static func dataBlock(_ records: [(key: CatalogKey, value: [UInt8])]) -> [UInt8] {
    var block = Script()
    block.add(UInt32(records.count))
    for (key, value) in records {
      block.add(UInt8(1))
      block.addPiece(key.bytes)
      block.add(UInt32(value.count))
      block.add(value)
    }
    return block.bytes
  }
}
