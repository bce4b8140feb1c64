import EncryptedFile
import SodiumPrimitives

/// The catalog as read from tables and journals.
struct LoadedCatalog {
  var snapshot = CatalogSnapshot()
  var commit: UInt64 = 0
  /// The last commit in the snapshot's frozen changes.
  var frozenCommit: UInt64?
  /// The journals that were read, newest first.
  var journals: [(id: Identifier, generation: UInt64)] = []
  /// The journal that was read last and its accepted end: the predecessor of the next journal.
  var end: JournalHeader.Predecessor?
  /// Slabs with segments of commits that were not known to be durable.
  var slabsToSynchronize: Set<UInt32> = []
  /// Records after the known end that are whole in one copy only, as a crash leaves them.
  var unevenRecords: [UnevenRecord] = []
  /// Total length of the journals whose changes are in the overlay.
  var overlayByteCount: UInt64 = 0

  mutating func apply(_ commit: FinishedCommit) {
    for change in commit.changes { snapshot.overlay.put(change.key, change.value) }
    self.commit = commit.number
  }
}

/// A record of a journal, or a block of a table, that is whole in one file and not in the other.
struct UnevenRecord {
  var whole: String
  var torn: String
  var range: Range<UInt64>
}

/// Reads the catalog: steps 5 to 8 of the reader's algorithm in CONTAINER-FORMAT.md.
struct CatalogLoader {
  let io: any BlockIO
  let container: Identifier
  let body: SuperblockBody
  let keys: Keyring
  let ciphers: CipherPool
  let cache: BlockCache
  let log: FindingLog
  let cipher: SecretStreamCipher
  /// Whether another process is writing. What looks like a torn tail may then be an unfinished
  /// record.
  let writerIsAlive: Bool
  /// Reads both copies of each record, to find damage that an ordinary opening misses.
  var readsBothCopies = false
  /// Continues with the commits before a damaged record, for a repair.
  var salvages = false

  init(
    io: any BlockIO, container: Identifier, body: SuperblockBody, keys: Keyring, ciphers: CipherPool,
    cache: BlockCache, log: FindingLog, writerIsAlive: Bool
  ) {
    self.io = io
    self.container = container
    self.body = body
    self.keys = keys
    self.ciphers = ciphers
    self.cache = cache
    self.log = log
    self.writerIsAlive = writerIsAlive
    cipher = SecretStreamCipher(ciphers.backend, in: ciphers.keys)
  }

  func load() throws -> LoadedCatalog {
    var catalog = LoadedCatalog()
    catalog.snapshot.tables = try openTables()
    catalog.commit = body.completeGeneration.commit
    try replayJournals(into: &catalog)
    return catalog
  }

  private func openTables() throws -> [TableFile] {
    try body.completeGeneration.tables.map { table in
      try TableFile(
        table, io: io, container: container, key: try keys.tableKey(table.id, table.keying),
        ciphers: ciphers, cache: cache, log: log)
    }
  }

  /// Reads both copies of what an ordinary opening does not read: every block of the tables and
  /// every record. Findings are added to the log. Returns blocks that one copy has.
  func checkCopies() throws -> [UnevenRecord] {
    let tables = try load().snapshot.tables
    var uneven: [UnevenRecord] = []
    for (i, table) in tables.enumerated() {
      let check = try table.check(isOldest: i == tables.count - 1)
      table.report(check)
      uneven += check.uneven
    }
    return uneven
  }

  /// Whether there is a journal or table that a later update of the superblock has named: an older superblock was put back, with or
  /// without other files. No crash leaves such a file: before an update is durable, there is nothing of the next one but files
  /// that it is to name, and its journal has no commit.
  func hasLaterState(than update: UInt64) throws -> Bool {
    var names: Set<String> = []
    for folder in [
      CopiedFile.Folder.journal.rawValue, CopiedFile.Folder.catalog.rawValue, CopiedFile.copyFolder,
    ] {
      names.formUnion(try io.readableFileNames(in: folder))
    }
    return try names.compactMap { Identifier(hex: $0) }.contains { id in
      // No container has so many updates that this one is about to name: such an id is no number at all.
      guard id.update > update, id.update - update < 1 << 32 else { return false }
      return try id.update - update > 1 || reader(id, generation: body.completeGeneration.number).hasCommit
    }
  }
}
