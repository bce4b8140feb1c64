extension Container {
  // MARK: Checking

  /// Verifies a container that is not open, like ``ContainerReading/verify(control:)``. Damage is
  /// reported, not thrown; an error is thrown if the container cannot be opened at all for lack of
  /// the right key, format or permission. Changes nothing, and works while another process writes.
  public static func verify(
    at path: String, credential: borrowing Credential, options: Options = Options(),
    control: BulkControl = BulkControl()
  ) throws -> VerifyReport {
    try verify(io: PosixBlockIO(path), credential: credential, options: options, control: control)
  }

  package static func verify(
    io: any BlockIO, credential: borrowing Credential, options: Options = Options(),
    control: BulkControl = BulkControl()
  ) throws -> VerifyReport {
    let container: Container
    do {
      container = try open(io: io, credential: credential, mode: .readOnly, options: options)
    } catch let error as ContainerError {
      guard let kind = error.findingKind else { throw error }
      return VerifyReport(findings: [Finding(.damage, kind, error.description)])
    }
    defer { try? container.close() }
    return try container.verify(control: control)
  }

  /// Writes the catalog anew, in two copies, if a copy of it or of the superblock is damaged, or if
  /// an older state was accepted.
  ///
  /// If both copies of a part are damaged, the repair mends damaged copies of other blocks of tables and
  /// throws `tableDamaged`, `journalDamaged` or `journalAltered`; everything else can still be read and copied to a new
  /// container. With `acceptsLoss`, commits from a damaged record on are given up; for a lost block of
  /// a table, records of older tables stand in, and names that only these have, and files without a
  /// name, come into the folder "from older tables" of the root. Damage of files'
  /// contents stays; ``ContainerReading/verify(control:)`` reports it. Throws the errors of opening
  /// for writing.
  public static func repair(
    at path: String, credential: borrowing Credential, options: Options = Options(), acceptsLoss: Bool = false
  ) throws -> RepairReport {
    try repair(io: PosixBlockIO(path), credential: credential, options: options, acceptsLoss: acceptsLoss)
  }

  package static func repair(
    io: any BlockIO, credential: borrowing Credential, options: Options = Options(), acceptsLoss: Bool = false
  ) throws -> RepairReport {
    var options = options
    options.salvages = acceptsLoss
    // Determine the damage before anything is written.
    let reader = try open(io: io, credential: credential, mode: .readOnly, options: options)
    let check = Verification(store: reader.store)
    var report = try check.checkForRepair(acceptsLoss: acceptsLoss)
    let salvaged = try check.salvaged(&report).map {
      SalvagedCatalog(catalog: $0, update: try reader.store.withSuperblock { slot, _, _ in slot.sequence })
    }
    try reader.close()
    guard report.wasWritten else { return report }
    options.salvages = report.hasLoss
    let container = try open(io, credential, .readWrite, options, with: salvaged)
    container.store.rewriteCatalogAtClosing()
    try container.close()
    return report
  }

  // MARK: Space

  /// Frees the space of removed and replaced segments, where that is worth the copying of the live
  /// ones beside them. Works while other threads read and write. Throws `cancelled`, and `diskFull`
  /// if there is no room for the copies. One compaction runs at a time: the progress closure may
  /// close the container, and must not call this method.
  @discardableResult
  public func compact(control: BulkControl = BulkControl()) throws -> CompactionReceipt {
    try store.requireOpen()
    guard mode == .readWrite else { throw ContainerError(.readOnly) }
    return try store.namingPath(store.place) { try store.compact(control: control) }
  }

  // MARK: Keys

  /// Adds a key to the container. Throws `noFreeKeySlot`, and `invalidArgument` for an empty
  /// passphrase, impossible costs, and a key that opens it already.
  public func addKey(_ credential: borrowing Credential) throws {
    try KeyChanges(store: store).add(credential)
  }

  /// Replaces the keys that match a credential by one for another, in one step: after a crash, one of
  /// the two opens the container, and never both. Needs no free slot. Throws `wrongKey` when none
  /// matches, and `invalidArgument` as `addKey` does.
  public func replaceKey(_ old: borrowing Credential, with new: borrowing Credential) throws {
    try KeyChanges(store: store).replace(old, with: new)
  }

  /// Removes the keys that match the credential and returns their number. Throws `invalidArgument`
  /// rather than remove the last key.
  @discardableResult
  public func removeKey(_ credential: borrowing Credential) throws -> Int {
    try KeyChanges(store: store).remove(credential)
  }
}
