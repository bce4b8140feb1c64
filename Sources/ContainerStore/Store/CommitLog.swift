import EncryptedFile
import SodiumPrimitives

/// The journal and the superblock of one opening, the progress of commits, and the files that each
/// state names.
///
/// One thread at a time writes journal and superblock: every access requires the lock of
/// ``Store/commitLog``.
struct CommitLog: ~Copyable {
  var superblock: SuperblockFile
  /// The journal of this opening; nil until its first commit.
  var journal: JournalWriter?
  /// The journal before this opening's own.
  var predecessor: JournalHeader.Predecessor?
  /// Journals that some generation needs, newest first.
  var chain: [(id: Identifier, generation: UInt64)]
  /// Total length of the journals of earlier openings whose changes are in the overlay.
  var chainByteCount: UInt64
  /// The generation from which the keys of new journals are derived. It may be pending.
  var newestGeneration: UInt64
  /// The generation whose tables are in use.
  var baseGeneration: UInt64
  /// The last commit in the frozen changes, which a pending generation is going to hold.
  var frozenCommit: UInt64?
  var checkpointIsRunning = false
  /// The journal's length when the last attempt at a checkpoint failed, and why.
  var checkpointFailure: (journalByteCount: UInt64, cause: any Error)?
  var reserve: Reserve
  /// Whether the next table takes in all others, at closing also when there is nothing new.
  var mergesAllTables = false
  /// The last commit in the journal.
  var commit: UInt64
  /// The last commit that is durable.
  var durableCommit: UInt64
  /// The journal's last record whose segments recovery would check. It becomes nil when a durable
  /// record states that this one was durable.
  var lastCheckedRecord: UInt64?
  /// Whether a timer is set that writes the known end to the superblock.
  var knownEndIsScheduled = false
  /// Whether the opening has ended. Another opening may have the lock, so nothing is written any
  /// more.
  var isClosed = false

  init(
    io: any BlockIO, superblock: consuming SuperblockFile, _ body: SuperblockBody, _ catalog: LoadedCatalog
  ) {
    self.superblock = superblock
    predecessor = catalog.end
    chain = catalog.journals
    chainByteCount = catalog.overlayByteCount
    newestGeneration = body.generations[0].number
    baseGeneration = body.completeGeneration.number
    frozenCommit = catalog.frozenCommit
    reserve = Reserve(io: io)
    commit = catalog.commit
    durableCommit = catalog.commit
  }

  /// Bytes of journals whose changes are in the overlay.
  var journalByteCount: UInt64 { chainByteCount + (journal?.byteCount ?? 0) }

  /// Journals that the generation in use needs.
  var journalCount: Int {
    let base = baseGeneration
    return chain.count { $0.generation >= base }
  }

  /// Makes the newest generation the base, since it is complete. Journals that only the previous
  /// one needed are no longer counted.
  mutating func completeGeneration() {
    frozenCommit = nil
    baseGeneration = newestGeneration
    let base = baseGeneration
    chain.removeAll { $0.generation < base }
  }
}
