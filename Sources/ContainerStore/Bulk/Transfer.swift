import EncryptedFile
import SodiumPrimitives

/// What arrived, and where.
public struct Receipt: Sendable {
  public struct File: Sendable {
    /// In the sender's container.
    public var originalPath: String
    /// In the receiver's.
    public var path: String
    public var size: UInt64
  }

  public var requestID: String
  /// The message's own directory in the inbox: the receiver deletes it when it is done.
  public var directory: String
  public var files: [File]
  public var byteCount: UInt64
  /// The receiver's ledger had the request already, and nothing was sent again. `files` is empty then.
  public var wasDeliveredBefore: Bool
}

extension Container {
  public struct SendOptions: Sendable {
    /// Every how many segments one is opened again after sealing and compared with its plaintext; 0: none, 1: all.
    public var checkInterval = 64
    /// Names the request in the receiver's ledger: a second one with the same id from the same sender is not delivered again. Nil:
    /// a random one.
    public var requestID: String?

    public init() {}
  }

  /// Delivers files and folders into another container's inbox, `/Inbox/<sender>/<time>/<original path>`: each is decrypted here and
  /// encrypted there, segment by segment, in parallel. All arrive in one commit, or nothing does.
  ///
  /// Every attachment is looked up before anything is copied. Throws `noSuchFile`, `invalidName` for a sender that is no name,
  /// `fileDamaged` with the source's path, `diskFull`, `cancelled`, `readOnly`.
  public func send(
    _ attachments: [String], to target: Container, sender: String, options: SendOptions = SendOptions(),
    control: BulkControl = BulkControl()
  ) throws -> Receipt {
    let began = Clock.wallNanoseconds()
    let requestID = options.requestID ?? Identifier.random().hex
    guard let senderName = FileName(sender), !sender.utf8.contains(where: { $0 < 0x20 || $0 == 0x7f }) else {
      throw ContainerError(.invalidName, path: sender, detail: "the sender's application id")
    }
    guard (1...255).contains(requestID.utf8.count) else {
      throw ContainerError(.invalidArgument, detail: "a request id has 1 to 255 bytes")
    }
    guard target.mode == .readWrite else { throw ContainerError(.readOnly, detail: "the receiver") }
    guard target !== self else {
      throw ContainerError(.invalidArgument, detail: "sender and receiver are one container")
    }
    guard !attachments.isEmpty else { throw ContainerError(.invalidArgument, detail: "nothing to send") }
    if let earlier = try target.delivery(sender: senderName, requestID: requestID) {
      return Receipt(
        requestID: requestID, directory: earlier.path, files: [], byteCount: earlier.byteCount,
        wasDeliveredBefore: true)
    }
    return try withSnapshot { records in
      let message = try Message(attachments, in: records)
      var plan = UnitPlan()
      for file in message.files {
        plan.addFile(extents: try checkedExtents(of: file.found, at: file.path, in: records))
      }
      let new = target.makeFiles(message.files.count)
      let sources = message.files.map(\.found)
      let paths = message.files.map(\.path)
      let checkInterval = options.checkInterval
      let extents = try target.namingPath(target.io.place) {
        try BulkWork(plan: plan, control: control, workers: target.workers, slabs: target.slabs).run {
          context, pieces in
          try target.resealUnit(
            pieces, from: self, sources: sources, paths: paths, of: new, checkInterval: checkInterval,
            context: context)
        }
      }
      return try target.namingPath(target.io.place) {
        try target.arrive(message, new, extents, from: senderName, requestID: requestID, began: began)
      }
    }
  }

  private func delivery(sender: FileName, requestID: String) throws -> Delivery? {
    try withSnapshot { records in
      try records.value(.delivery(sender: sender.bytes, request: Array(requestID.utf8))).map {
        try Delivery($0)
      }
    }
  }

  /// The one commit in which everything becomes visible: directories, files and the ledger's entry.
  private func arrive(
    _ message: Message, _ new: [NewFile], _ extents: [[Extent]], from sender: FileName, requestID: String,
    began: Int64
  ) throws -> Receipt {
    try transaction(storing: extents.flatMap { $0 }, durability: options.durability == .none ? nil : .full) {
      transaction in
      let ledgerKey = CatalogKey.delivery(sender: sender.bytes, request: Array(requestID.utf8))
      // Another thread may have delivered the same request meanwhile.
      guard try transaction.value(ledgerKey) == nil else {
        throw ContainerError(.invalidArgument, detail: "this request is being delivered already")
      }
      let inbox = [FileName("Inbox")!, sender]
      let senderDirectory = try transaction.directory(inbox, path: StorePath.text(inbox))
      // A directory is never used again: when two messages share a millisecond, the time moves on by one.
      var time = began
      while try transaction.entry(senderDirectory, InboxName.time(time)) != nil { time += 1_000_000 }
      let place = inbox + [InboxName.time(time)]
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
        let inode = newInode(like: file.found.inode, secret: new[i].secret, now: transaction.now)
        transaction.putFile(new[i].id, inode, extents: extents[i])
        try transaction.link(parent, names.last!, to: new[i].id, kind: .file)
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

/// The files and folders of a message, and their places below its inbox directory.
private struct Message {
  struct File {
    var path: String
    var found: FoundFile
    var names: [FileName]
  }

  var files: [File] = []
  var directories: [[FileName]] = []

  init(_ attachments: [String], in records: CatalogSnapshot) throws {
    let items = try records.attachedItems(attachments)
    // Directories keep their places, those above a file too; files make way for them and for each other.
    var taken: [[FileName]: [FileName]?] = [:]
    for (original, found) in items {
      var names = InboxName.safe(original)
      if found.inode.kind == .directory { directories.append(names) } else { names.removeLast() }
      while !names.isEmpty, taken.updateValue(nil, forKey: names) == nil { names.removeLast() }
    }
    for (original, found) in items where found.inode.kind != .directory {
      let text = StorePath.text(original)
      guard found.inode.kind == .file else {
        throw ContainerError(.cannotStore, path: text, detail: "a symbolic link cannot be sent")
      }
      let names = InboxName.safe(original)
      var unique = names
      var number = 1
      while let other = taken[unique], other != original {
        number += 1
        unique = names.dropLast() + [InboxName.numbered(names.last!, number)]
      }
      // Else it was named twice, or as part of a folder too.
      guard taken.updateValue(original, forKey: unique) == nil else { continue }
      files.append(File(path: text, found: found, names: unique))
    }
  }
}

/// Names below an inbox directory.
enum InboxName {
  /// `yyyyMMdd'T'HHmmss.SSS'Z'` in UTC: fixed width, sorts by time, no blanks or colons.
  static func time(_ nanoseconds: Int64) -> FileName {
    let calendar = CalendarTime(nanoseconds)
    func digits(_ value: Int, _ width: Int) -> String {
      let text = String(value)
      return String(repeating: "0", count: max(0, width - text.count)) + text
    }
    let date = digits(calendar.year, 4) + digits(calendar.month, 2) + digits(calendar.day, 2)
    let time = digits(calendar.hour, 2) + digits(calendar.minute, 2) + digits(calendar.second, 2)
    return FileName("\(date)T\(time).\(digits(calendar.millisecond, 3))Z")!
  }

  /// The original names with control characters replaced; `..` and empty parts are gone already.
  static func safe(_ names: [FileName]) -> [FileName] {
    names.map { name in
      FileName(bytes: name.bytes.map { $0 < 0x20 || $0 == 0x7f ? UInt8(ascii: "_") : $0 }) ?? name
    }
  }

  /// Another name, for an original that would take the place of one that differs from it only in what was replaced.
  static func numbered(_ name: FileName, _ number: Int) -> FileName {
    let suffix = Array("-\(number)".utf8)
    var kept = name.bytes.prefix(FileName.byteCountMax - suffix.count)
    // Not in the middle of a UTF-8 character.
    while kept.count < name.bytes.count, let next = Optional(name.bytes[kept.count]), next & 0xc0 == 0x80 {
      kept = kept.dropLast()
    }
    return FileName(bytes: Array(kept) + suffix) ?? name
  }
}
