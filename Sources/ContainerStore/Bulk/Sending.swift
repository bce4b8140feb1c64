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
  /// The sender's own name for the request; nil if it has none, so that nothing needs to be remembered.
  private let requestID: String?
  private let began = Clock.wallNanoseconds()

  /// Throws what is wrong with the arguments and the receiver, before anything is read.
  init(
    _ attachments: [String], from store: Store, to target: Store, sender: String, options: SendOptions,
    control: BulkControl
  ) throws {
    (self.store, self.target, self.options, self.control) = (store, target, options, control)
    self.attachments = attachments
    self.sender = try InboxName.sender(sender)
    requestID = options.requestID
    if let requestID, !(1...RequestKey.requestByteCountMax).contains(requestID.utf8.count) {
      throw ContainerError(
        .invalidArgument, detail: "a request id has 1 to \(RequestKey.requestByteCountMax) bytes")
    }
    guard target.mode == .readWrite else { throw ContainerError(.readOnly, detail: "the receiver") }
    guard target !== store else {
      throw ContainerError(.invalidArgument, detail: "sender and receiver are one container")
    }
    guard !attachments.isEmpty else { throw ContainerError(.invalidArgument, detail: "nothing to send") }
  }

  /// The receipt of an earlier delivery of the same request, if the receiver's ledger has one.
  func earlierReceipt() throws -> Receipt? {
    guard let requestID, let earlier = try delivery(requestID) else { return nil }
    return Receipt(
      requestID: requestID, directory: earlier.path, files: [], byteCount: earlier.byteCount,
      wasDeliveredBefore: true)
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
        [store, target] context, unit in
        try UnitSealing(store: target).reseal(
          unit, from: store, sources: sources, paths: paths, of: new, checkInterval: checkInterval,
          context: context)
      }
    }
    return try target.namingPath(target.io.place) {
      try arrive(message, new, runs)
    }
  }

  /// The entry of an earlier delivery in the receiver's ledger.
  private func delivery(_ requestID: String) throws -> Delivery? {
    try target.withSnapshot { records in
      try records.value(ledgerKey(requestID)).map {
        try CatalogSnapshot.decode($0) { bytes throws(MalformedBytes) in try Delivery(bytes) }
      }
    }
  }

  private func ledgerKey(_ requestID: String) -> CatalogKey {
    .delivery(sender: sender.bytes, request: Array(requestID.utf8))
  }

  /// Makes everything visible with one commit: directories, files and the ledger's entry.
  private func arrive(_ message: Message, _ new: NewFiles, _ runs: FileRuns) throws -> Receipt {
    try target.transaction(storing: runs.extents, durability: target.acknowledged) {
      transaction in
      // Another thread may have delivered the same request meanwhile.
      if let requestID, try transaction.value(ledgerKey(requestID)) != nil {
        throw ContainerError(.invalidArgument, detail: "this request is being delivered already")
      }
      let time = try transaction.freeInboxTime(from: began, of: sender)
      var inbox = try InboxDirectory(of: sender, time, in: transaction)
      for place in message.directories { try inbox.directory(at: place[...]) }
      var receipt = Receipt(
        requestID: requestID, directory: inbox.path, files: [], byteCount: 0, wasDeliveredBefore: false)
      for (i, file) in message.files.enumerated() {
        let new = new[i]
        let inode = UnitSealing(store: target).inode(
          like: file.found.inode, secret: new.secret, now: transaction.now)
        transaction.putFile(new.id, inode, extents: runs[i])
        try inbox.add(new.id, at: file.place)
        receipt.files.append(
          Receipt.File(originalPath: file.path, path: inbox.path(at: file.place), size: inode.size))
        let (sum, overflows) = receipt.byteCount.addingReportingOverflow(inode.size)
        receipt.byteCount = overflows ? .max : sum
      }
      if let requestID {
        let delivery = Delivery(
          time: transaction.now, fileCount: UInt64(receipt.files.count), byteCount: receipt.byteCount,
          path: receipt.directory)
        transaction.put(ledgerKey(requestID), delivery.encoded)
      }
      return receipt
    }
  }
}
