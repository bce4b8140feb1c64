import EncryptedFile
import SodiumPrimitives

/// The change that makes an arrival visible.
struct ArrivalCommit {
  var key: ArrivalKey
  var message: ArrivingMessage
  var staging: Staging?
  var manifest: Manifest
  var staged: [Arrival.StagedFile]
  /// The parts of files that were stored after the last staging.
  var stored: [Arrival.StoredPart]
}

extension Messages {
  /// Returns the message, and the number of messages that have arrived under its incarnation, which is 0 if a newer incarnation
  /// has replaced it. Throws ``ArrivalNumberTaken`` if another message took its number, or the floor passed it, meanwhile.
  func commit(_ delivery: ArrivalCommit) throws -> (queued: QueuedMessage, arrivedCount: UInt64) {
    let committed = try store.namingPath(store.place) {
      // Do the long part of the flush before the transaction, while other commits continue.
      let extents = delivery.stored.flatMap(\.extents)
      do {
        if store.options.durability != .none { try store.synchronizeSegments() }
      } catch {
        store.slabs.discard(extents)
        throw error
      }
      return try store.transaction(storing: extents, durability: store.acknowledged) {
        try $0.apply(delivery)
      }
    }
    // What is said to have arrived survives the death of the process.
    if store.options.durability == .none { try store.flush(durably: false) }
    return committed
  }

  /// Removes the staged files and keeps the staging directory and its record.
  func dropStagedFiles(of staging: Staging) throws {
    try store.transaction(durability: store.soon) { transaction in
      try transaction.requireStaging(staging)
      for (name, entry) in try transaction.entries(staging.directory) where entry.kind == .file {
        try transaction.dropFile(entry.file)
        try transaction.unlink(staging.directory, name)
      }
    }
  }
}

extension Transaction {
  private static let removed = "what was staged of the message was removed or changed"

  func requireStaging(_ staging: Staging) throws {
    guard try isThere(staging) else { throw ContainerError(.noSuchFile, detail: Self.removed) }
  }

  /// Puts a file whose contents begin with what was stored.
  func putStaged(_ stored: Arrival.StoredPart, _ file: Manifest.File) {
    putFile(
      stored.identity.id, stagedInode(file, size: stored.byteCount, secret: stored.identity.secret),
      extents: stored.extents)
  }

  /// Appends what was stored to a staged file.
  func extendStaged(
    _ stored: Arrival.StoredPart, after staged: Arrival.StagedFile, in staging: Staging
  ) throws {
    guard try entry(staging.directory, Staging.name(stored.index))?.file == stored.identity.id,
      case var inode = try inode(stored.identity.id), inode.size == staged.byteCount
    else { throw ContainerError(.noSuchFile, detail: Self.removed) }
    inode.size = stored.byteCount
    inode.changed = now
    extend(stored.identity.id, inode, by: stored.extents)
  }

  private func stagedInode(_ file: Manifest.File, size: UInt64, secret: [UInt8]) -> Inode {
    var inode = Inode(kind: .file, permissions: file.permissions, now: now, epoch: epoch, secret: secret)
    inode.size = size
    inode.modified = file.modified
    return inode
  }

  /// Adds the ledger's entry and the queued message, and moves the files to their paths in the
  /// inbox.
  func apply(_ delivery: ArrivalCommit) throws -> (queued: QueuedMessage, arrivedCount: UInt64) {
    let (message, sender) = (delivery.message, delivery.key.sender)
    let answer = try ledger(
      sender: sender, incarnation: message.incarnation, number: message.number, id: message.id,
      wasTaken: true)
    switch answer.state {
    case .unknown: break
    case .numberTaken: throw ArrivalNumberTaken(generation: answer.generation)
    case .delivered: throw ContainerError(.invalidArgument, detail: "this message has arrived before")
    }
    var directory = ""
    if let staging = delivery.staging {
      directory = try moveIntoInbox(delivery, staging)
      try dropStaging(staging)
    }
    let arrivedCount = try addDelivery(message, from: sender)
    let (places, files) = (delivery.manifest.places, delivery.manifest.files)
    let arrival = queue(
      message.id, from: message.sender, message.message, directory: directory,
      fileCount: message.fileCount,
      files: zip(places, files).lazy.map { (place: $0, size: $1.size) })
    let queued = QueuedMessage(
      arrival: arrival, time: now, id: message.id, sender: message.sender, message: message.message,
      directory: delivery.staging == nil ? nil : directory,
      files: zip(places, files).map { (directory + "/" + String(decoding: $0, as: UTF8.self), $1.size) })
    return (queued, arrivedCount)
  }

  private func moveIntoInbox(_ delivery: ArrivalCommit, _ staging: Staging) throws -> String {
    try requireStaging(staging)
    var inbox = try InboxDirectory(of: staging.sender, staging.time, in: self)
    var (staged, stored) = (delivery.staged[...], delivery.stored[...])
    for (index, file) in delivery.manifest.files.enumerated() {
      let id: UInt64
      if file.size == 0 {
        id = makeEmptyFile(file)
      } else if let first = staged.first, first.index == index {
        id = try take(staged.removeFirst(), stored.first, file, from: staging)
        if stored.first?.index == index { stored.removeFirst() }
      } else {
        guard let next = stored.popFirst(), next.index == index, next.byteCount == file.size else {
          throw ContainerError(.noSuchFile, detail: Self.removed)
        }
        putStaged(next, file)
        id = next.identity.id
      }
      try inbox.add(id, at: delivery.manifest.places[index])
    }
    return inbox.path
  }

  private func makeEmptyFile(_ file: Manifest.File) -> UInt64 {
    let id = takeFileID()
    putFile(id, stagedInode(file, size: 0, secret: Random.bytes(Inode.secretByteCount)), extents: [])
    return id
  }

  /// Takes a file out of the staging directory, with the rest of its contents if that was stored since.
  private func take(
    _ staged: Arrival.StagedFile, _ rest: Arrival.StoredPart?, _ file: Manifest.File, from staging: Staging
  ) throws -> UInt64 {
    let name = Staging.name(staged.index)
    if let rest, rest.index == staged.index { try extendStaged(rest, after: staged, in: staging) }
    guard let entry = try entry(staging.directory, name), entry.kind == .file,
      entry.file == staged.identity.id, try inode(entry.file).size == file.size
    else { throw ContainerError(.noSuchFile, detail: Self.removed) }
    delete(.entry(parent: staging.directory, name: name))
    return entry.file
  }
}
