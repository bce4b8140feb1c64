import EncryptedFile
import SodiumPrimitives

/// Delivers files of one store to the inbox of another store that is open in this process.
struct Sending {
  let store: Store
  let target: Store
  let options: SendOptions
  let control: BulkControl
  private let attachments: [String]
  private let sender: FileName
  private let requestID: String
  private let began = Clock.wallNanoseconds()

  /// Throws what is wrong with the arguments and the receiver, before anything is read.
  init(
    _ attachments: [String], from store: Store, to target: Store, sender: String, options: SendOptions,
    control: BulkControl
  ) throws {
    (self.store, self.target, self.options, self.control) = (store, target, options, control)
    self.attachments = attachments
    self.sender = try InboxName.sender(sender)
    requestID = options.requestID ?? Identifier.random().hex
    guard (1...255).contains(requestID.utf8.count) else {
      throw ContainerError(.invalidArgument, detail: "a request id has 1 to 255 bytes")
    }
    guard target.mode == .readWrite else { throw ContainerError(.readOnly, detail: "the receiver") }
    guard target !== store else {
      throw ContainerError(.invalidArgument, detail: "sender and receiver are one container")
    }
    guard !attachments.isEmpty else { throw ContainerError(.invalidArgument, detail: "nothing to send") }
  }

  /// The receipt of an earlier delivery of the same request, if the receiver's ledger has one.
  func earlierReceipt() throws -> Receipt? {
    try delivery(sender: sender, requestID: requestID).map { earlier in
      Receipt(
        requestID: requestID, directory: earlier.path, files: [], byteCount: earlier.byteCount,
        wasDeliveredBefore: true)
    }
  }

  /// See ``ContainerReading/send(_:to:sender:options:control:)``.
  func run(in records: CatalogSnapshot) throws -> Receipt {
    let message = try Message(attachments, in: records)
    var plan = UnitPlan()
    for file in message.files {
      plan.addFile(extents: try records.checkedExtents(of: file.found, at: file.path))
    }
    let new = NewFiles(message.files.count, in: target)
    let sources = message.files.map(\.found)
    let paths = message.files.map(\.path)
    let checkInterval = options.checkInterval
    let runs = try target.namingPath(target.io.place) {
      try BulkWork(plan: plan, control: control, workers: target.workers, slabs: target.slabs).run {
        [store, target] context, pieces in
        try UnitSealing(store: target).reseal(
          pieces, from: store, sources: sources, paths: paths, of: new, checkInterval: checkInterval,
          context: context)
      }
    }
    return try target.namingPath(target.io.place) {
      try arrive(message, new, runs, from: sender, requestID: requestID, began: began)
    }
  }

  /// The entry of an earlier delivery in the receiver's ledger.
  private func delivery(sender: FileName, requestID: String) throws -> Delivery? {
    try target.withSnapshot { records in
      try records.value(.delivery(sender: sender.bytes, request: Array(requestID.utf8))).map {
        try CatalogSnapshot.decode($0) { bytes throws(MalformedBytes) in try Delivery(bytes) }
      }
    }
  }

  /// Makes everything visible with one commit: directories, files and the ledger's entry.
  private func arrive(
    _ message: Message, _ new: NewFiles, _ runs: FileRuns, from sender: FileName, requestID: String,
    began: Int64
  ) throws -> Receipt {
    try target.transaction(storing: runs.extents, durability: target.acknowledged) {
      transaction in
      let ledgerKey = CatalogKey.delivery(sender: sender.bytes, request: Array(requestID.utf8))
      // Another thread may have delivered the same request meanwhile.
      guard try transaction.value(ledgerKey) == nil else {
        throw ContainerError(.invalidArgument, detail: "this request is being delivered already")
      }
      let place = InboxName.directory(of: sender) + [try transaction.freeInboxTime(from: began, of: sender)]
      _ = try transaction.directory(place, path: StorePath.text(place))
      for names in message.directories {
        _ = try transaction.directory(place + names, path: StorePath.text(place + names))
      }
      var receipt = Receipt(
        requestID: requestID, directory: StorePath.text(place), files: [], byteCount: 0,
        wasDeliveredBefore: false)
      for (i, file) in message.files.enumerated() {
        let names = place + file.names
        let parent = try transaction.directory(names.dropLast(), path: StorePath.text(names))
        let new = new[i]
        let inode = UnitSealing(store: target).inode(
          like: file.found.inode, secret: new.secret, now: transaction.now)
        transaction.putFile(new.id, inode, extents: runs[i])
        try transaction.link(parent, names.last!, to: new.id, kind: .file)
        receipt.files.append(
          Receipt.File(originalPath: file.path, path: StorePath.text(names), size: inode.size))
        let (sum, overflows) = receipt.byteCount.addingReportingOverflow(inode.size)
        receipt.byteCount = overflows ? .max : sum
      }
      let delivery = Delivery(
        time: transaction.now, fileCount: UInt64(receipt.files.count), byteCount: receipt.byteCount,
        path: receipt.directory)
      transaction.put(ledgerKey, delivery.encoded)
      return receipt
    }
  }
}
