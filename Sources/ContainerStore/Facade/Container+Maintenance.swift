public import SodiumPrimitives

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
  /// name, come into the folder "from older tables" of the root; where all of the oldest table is lost it throws `tableDamaged` all the
  /// same, unless that is the one that the container was made with. Damage of files'
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
    let container = try open(io, credential, .readWrite, options, .none, with: salvaged)
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

  /// The passphrases and keys that open the container, in the order of their slots.
  public func keys() throws -> [ContainerKey] { try store.keyTable().keys }

  /// Whether a credential opens the container: with any of its keys, or with that of the given id, which costs one password hash.
  /// The time of a hash is that of an opening, and no lock is held meanwhile. Throws `closed`, also when the container
  /// was closed meanwhile, and `invalidArgument` for an id that no key has, and for slots that cost more than the options allow.
  ///
  ///     guard try container.holds(.passphrase(typed), key: container.openingKey) else { return askAgain() }
  public func holds(_ credential: borrowing Credential, key: Identifier? = nil) throws -> Bool {
    let isHeld = try !store.keyTable().places(openedBy: credential, id: key, store.options).isEmpty
    try store.requireOpen()
    return isHeld
  }

  /// Adds a key to the container. Throws `noFreeKeySlot`, and `invalidArgument` for an empty
  /// passphrase, impossible costs, a key that opens it already, and a label that is empty, longer than 63 bytes or another
  /// key's.
  public func addKey(_ credential: borrowing Credential, label: String? = nil) throws {
    try KeyChanges(store: store).add(credential, label: label)
  }

  /// Replaces the keys that match a credential by one for another, in one step: after a crash, one of
  /// the two opens the container, and never both. Needs no free slot, and keeps the label. Throws `wrongKey` when none
  /// matches, and `invalidArgument` as `addKey` does.
  public func replaceKey(_ old: borrowing Credential, with new: borrowing Credential) throws {
    let (removed, added) = try KeyChanges(store: store).replace(old, with: new)
    unlockedBy.withLock { if removed.contains($0) { $0 = added } }
  }

  /// Removes the keys that match the credential and returns their number. Throws `invalidArgument`
  /// rather than remove the last key.
  @discardableResult
  public func removeKey(_ credential: borrowing Credential) throws -> Int {
    try KeyChanges(store: store).remove(credential)
  }

  /// Removes the key of an id, without its secret. Throws `invalidArgument` when there is none, and rather than remove the last key.
  ///
  ///     for key in try container.keys() where key.label == "old laptop" { try container.removeKey(id: key.id) }
  public func removeKey(id: Identifier) throws { try KeyChanges(store: store).remove(id) }

  /// Gives the key of an id another label, or none. Throws `invalidArgument` when there is no such key, and for a label that is
  /// empty, longer than 63 bytes or another key's.
  public func setLabel(_ label: String?, ofKey id: Identifier) throws {
    try KeyChanges(store: store).setLabel(label, of: id)
  }
}
