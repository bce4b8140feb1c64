public import SodiumPrimitives

public enum ContainerMode: Sendable {
  /// Reads and writes. A container has one such opening at a time.
  case readWrite
  /// Reads the state as of the opening, also while another process writes.
  case readOnly
}

/// The moment at which a change becomes durable. Closing, ``Container/synchronize()`` and arrivals
/// in an inbox are durable in `full` and `grouped`.
public enum ContainerDurability: String, Sendable {
  /// Before the call returns.
  case full
  /// Within 50 ms. A power failure or a kill may lose the changes of the last 50 ms: all of them,
  /// or those after some moment.
  case grouped
  /// When the system writes the change. A power failure may lose everything since the last
  /// ``Container/synchronize()``; the next opening checks what is left.
  case none
}

public struct ContainerOptions: Sendable {
  public var durability = ContainerDurability.grouped
  public var cipher = CipherBackend.preferred
  /// The cost of password hashes in new key slots.
  public var passwordHash = PasswordHash.Parameters.standard
  /// The number of threads that seal and open large files.
  public var threadCount = processorCount()
  /// Opens a container whose superblock was put back to an older one, instead of throwing
  /// `rolledBack`. Opening for writing then removes the later state for good.
  public var acceptsOlderState = false
  /// The maximum memory that a key slot's password hash may require; all slots together cost at
  /// most 16 passes over as much. Slots cannot be authenticated before their key is known, so
  /// anyone who can write the superblock could require a gigabyte, eight times.
  public var passwordHashMemoryKiBMax: UInt32 = 256 * 1024
  /// Bytes of opened catalog blocks that are kept in memory.
  public var catalogCacheByteCount = 8 << 20
  /// The rate at which compaction frees space in the background; 0: only when
  /// ``Container/compact(control:)`` is called.
  public var compactionBytesPerSecond: UInt64 = 64 << 20
  /// Bytes that open files may hold in memory before they are sealed and stored.
  public var writeCacheByteCount = 32 << 20
  /// Opens with the commits before a damaged commit instead of throwing.
  package var salvages = false
  /// The bounds of the bytes of changes at which a checkpoint begins; the actual number depends on
  /// the stored bytes.
  package var checkpointByteCounts: ClosedRange<UInt64> = 1 << 20...8 << 20
  /// The minimum waste at which a compaction begins in the background.
  package var backgroundWasteByteCountMin: UInt64 = 8 << 20
  /// The disk of a container at a path, and of what the runtime keeps beside it.
  package var disk: @Sendable (String) -> any BlockIO = { PosixBlockIO($0) }
  /// The clocks of a writer, which draws a new session when one of them jumps.
  var sessionClocks: WriteSession.Clocks = WriteSession.machineClocks

  public init() {}
}
