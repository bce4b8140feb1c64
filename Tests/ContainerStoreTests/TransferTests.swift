import ContainerStore
import Foundation
import Locks
import OpenDynamicsTesting
import SodiumPrimitives
import TestSupport
import Testing

/// Two containers: what is sent goes from one to the other.
private struct Post {
  let from: Fixture
  let to: Fixture
  static let sender = "com.example.sender"

  init(durability: Container.Durability = .full) throws {
    from = try Fixture(key: 9, durability: durability)
    to = try Fixture(durability: durability)
  }

  var sender: Container { from.container }
  var receiver: Container { to.container }

  @discardableResult
  func send(
    _ attachments: [String], as name: String = Post.sender, requestID: String? = nil, checkInterval: Int = 64,
    control: BulkControl = BulkControl()
  ) throws -> Receipt {
    var options = SendOptions()
    options.requestID = requestID
    options.checkInterval = checkInterval
    return try sender.send(attachments, to: receiver, sender: name, options: options, control: control)
  }

  /// The receiver as it is: when two are equal, nothing has happened to it.
  func stateOfReceiver() throws -> State {
    let info = try receiver.info()
    return State(
      tree: try receiver.tree(), slabSizes: to.io.slabSizes,
      figures: [
        info.commit, UInt64(info.fileCount), UInt64(info.directoryCount), info.byteCount,
        UInt64(info.slabCount),
        info.liveByteCount, info.slabByteCount,
      ])
  }

  struct State: Equatable {
    var tree: [String: [UInt8]?]
    var slabSizes: [String: Int]
    var figures: [UInt64]
  }
}

struct TransferTests {
  // MARK: What arrives

  @Test(arguments: borderSizes, [1, 64])
  func deliversAFileOfEverySize(size: Int, checkInterval: Int) throws {
    let post = try Post()
    let bytes = testBytes(size, seed: UInt64(size))
    try post.sender.createDirectory("/Documents")
    try post.sender.write(bytes, to: "/Documents/Zebra", permissions: 0o640)
    try post.sender.setAttributes(at: "/Documents/Zebra", created: 5, modified: 1_000_000_007)
    var reports: [BulkProgress] = []
    let receipt = try post.send(
      ["/Documents/Zebra"], checkInterval: checkInterval,
      control: BulkControl(progress: { reports.append($0) }))
    let file = try #require(receipt.files.first)
    #expect(receipt.files.count == 1 && receipt.byteCount == UInt64(size) && !receipt.wasDeliveredBefore)
    #expect(file.originalPath == "/Documents/Zebra" && file.size == UInt64(size))
    #expect(file.path == receipt.directory + "/Documents/Zebra")
    #expect(try post.receiver.contents(at: file.path) == bytes)
    let attributes = try #require(try post.receiver.attributes(at: file.path))
    #expect(attributes.permissions == 0o640 && attributes.modified == 1_000_000_007)
    #expect(abs(attributes.created - Int64(Date().timeIntervalSince1970 * 1e9)) < 60_000_000_000)
    #expect(reports.last?.isFinished == true && reports.last?.byteCount == UInt64(size))
    #expect(zip(reports, reports.dropFirst()).allSatisfy { $0.bytesDone <= $1.bytesDone })
    // It is the receiver's own.
    try post.sender.remove("/Documents")
    try post.sender.close()
    let reopened = try post.to.reopened()
    #expect(try reopened.contents(at: file.path) == bytes)
    #expect(try reopened.verify().findings == [])
  }

  @Test func deliversFilesAndFolders() throws {
    let post = try Post()
    try post.sender.createDirectory("/a/empty", withIntermediateDirectories: true)
    try post.sender.createDirectory("/b/deep", withIntermediateDirectories: true)
    for (i, path) in ["/a/note", "/b/note", "/b/deep/large", "/b/deep/nothing", "/other"].enumerated() {
      try post.sender.write(testBytes([5, 6, 1 << 20 + 1, 0, 7][i], seed: UInt64(i)), to: path)
    }
    // Two of the same base name; a folder and a file in it; a file twice in different words; an empty folder alone.
    let receipt = try post.send(["/b", "/a/note", "/b/deep/large", "b//note", "/a/../a/note", "/a/empty"])
    #expect(
      Set(receipt.files.map(\.originalPath)) == ["/a/note", "/b/note", "/b/deep/large", "/b/deep/nothing"])
    #expect(receipt.files.count == 4 && receipt.byteCount == 5 + 6 + 1 << 20 + 1)
    #expect(
      try post.receiver.tree().removingPrefix(receipt.directory + "/") == [
        "a": nil, "a/empty": nil, "a/note": testBytes(5, seed: 0), "b": nil, "b/note": testBytes(6, seed: 1),
        "b/deep": nil, "b/deep/large": testBytes(1 << 20 + 1, seed: 2), "b/deep/nothing": [],
      ])
    #expect(try post.receiver.verify().findings == [])
  }

  @Test func deliversTheWholeContainer() throws {
    let post = try Post()
    try post.sender.createDirectory("/a")
    try post.sender.write([1], to: "/a/file")
    let receipt = try post.send(["/"])
    #expect(try post.receiver.tree().removingPrefix(receipt.directory + "/") == ["a": nil, "a/file": [1]])
  }

  @Test func everyMessageHasADirectoryOfItsOwn() throws {
    let post = try Post(durability: .none)
    try post.sender.write([1], to: "/Zebra")
    let receipts = try (0..<40).map { _ in try post.send(["/Zebra"]) }
    let places = receipts.map(\.directory)
    #expect(Set(places).count == 40)
    for place in places {
      #expect(place.wholeMatch(of: /\/Inbox\/com\.example\.sender\/\d{8}T\d{6}\.\d{3}Z/) != nil, "\(place)")
    }
    #expect(places == places.sorted())
    // The name is the time at which it was sent, in UTC.
    let formatter = ISO8601DateFormatter()
    let name = try #require(places.first?.split(separator: "/").last)
    let text =
      "\(name.prefix(4))-\(name.dropFirst(4).prefix(2))-\(name.dropFirst(6).prefix(5)):\(name.dropFirst(11).prefix(2)):\(name.dropFirst(13).prefix(2))Z"
    let time = try #require(formatter.date(from: text))
    #expect(abs(time.timeIntervalSinceNow) < 60)
  }

  @Test func messagesThatShareAMomentShareNoDirectory() throws {
    let post = try Post(durability: .none)
    try post.sender.write([1], to: "/Zebra")
    let places = Guarded<[String]>([])
    let complaints = inThreads(4) { _ in
      for _ in 0..<10 {
        let place = try post.send(["/Zebra"]).directory
        places.withLock { $0.append(place) }
      }
      return nil
    }
    #expect(complaints == [])
    #expect(places.withLock { Set($0).count } == 40)
    #expect(try post.receiver.verify().findings == [])
  }

  @Test func bothWaysAtOnce() throws {
    let post = try Post(durability: .grouped)
    try post.sender.write(testBytes(200_000, seed: 1), to: "/Zebra")
    try post.receiver.write(testBytes(200_000, seed: 2), to: "/Yak")
    let complaints = inThreads(4) { i in
      for _ in 0..<5 {
        let (from, to, name) =
          i % 2 == 0 ? (post.sender, post.receiver, "/Zebra") : (post.receiver, post.sender, "/Yak")
        let receipt = try from.send([name], to: to, sender: "app\(i)")
        guard try to.contents(at: receipt.files[0].path) == from.contents(at: name) else {
          return "other contents"
        }
      }
      return nil
    }
    #expect(complaints == [])
    #expect(try post.sender.verify().findings == [])
    #expect(try post.receiver.verify().findings == [])
  }

  @Test func theStoredBytesAreTheReceiversOwn() throws {
    let post = try Post()
    // Of equal plaintext under one key and one nonce, the stored bytes would be equal as well.
    try post.sender.write([UInt8](repeating: 0, count: 100_000), to: "/Zebra")
    try post.send(["/Zebra"])
    func stored(_ io: RecordingIO) throws -> [UInt8] {
      let image = io.image
      let inode = try #require(image.names["slab/00000000"])
      return try #require(image.contents[inode])
    }
    let sent = try stored(post.from.io)
    let received = try stored(post.to.io)
    try #require(sent.count == received.count)
    let equalCount = zip(sent, received).count { $0 == $1 }
    // One in 256 is equal by chance.
    #expect(equalCount < sent.count / 100)
  }

  // MARK: Names

  @Test func controlCharactersInNamesAreReplacedAndNothingIsLost() throws {
    let post = try Post()
    let long = String(repeating: "x", count: 254)
    let wide = String(repeating: "é", count: 127)
    let names = [
      "a\nb", "a\u{1}b", "a_b", "a_b-2", "a\u{7f}b", long + "\u{1}", long + "\u{2}", long + "_",
      wide + "\u{3}",
      wide + "\u{4}", "..\u{1}", "\u{1}",
    ]
    try post.sender.createDirectory("/Zebra")
    for (i, name) in names.enumerated() { try post.sender.write([UInt8(i)], to: "/Zebra/" + name) }
    let receipt = try post.send(["/Zebra", "/Zebra/a\nb"])
    #expect(receipt.files.count == names.count)
    for (i, name) in names.enumerated() {
      let file = try #require(
        receipt.files.first { Array($0.originalPath.utf8) == Array("/Zebra/\(name)".utf8) })
      #expect(try post.receiver.contents(at: file.path) == [UInt8(i)])
      #expect(file.path.hasPrefix(receipt.directory + "/Zebra/"))
      #expect(!file.path.utf8.contains { $0 < 0x20 || $0 == 0x7f })
    }
    #expect(Set(receipt.files.map { Array($0.path.utf8) }).count == names.count)
    #expect(try post.receiver.list(receipt.directory + "/Zebra").count == names.count)
    #expect(try post.receiver.verify().findings == [])
  }

  /// A file whose safe name is that of a folder must make way for it, named or only on the way to another file.
  @Test(arguments: [
    ["/", "/dir_", "/dir\u{1}"], ["/dir_", "/dir\u{1}"], ["/dir\u{1}", "/dir_"],
    ["/dir_/inner", "/dir\u{1}"],
    ["/dir\u{1}", "/dir_/inner"], ["/dir\u{1}", "/dir_/empty"],
  ])
  func aFileNeverTakesThePlaceOfAFolder(attachments: [String]) throws {
    let post = try Post()
    try post.sender.createDirectory("/dir_/empty", withIntermediateDirectories: true)
    try post.sender.write([1], to: "/dir_/inner")
    try post.sender.write([2], to: "/dir\u{1}")
    let receipt = try post.send(attachments)
    for file in receipt.files {
      #expect(try post.receiver.contents(at: file.path) == [file.originalPath == "/dir\u{1}" ? 2 : 1])
    }
    #expect(receipt.files.contains { $0.originalPath == "/dir\u{1}" })
    #expect(try post.receiver.verify().findings == [])
  }

  @Test func namesThatUnicodeTakesForEqualAreDeliveredApart() throws {
    let post = try Post()
    try post.sender.write([1], to: "/caf\u{e9}")
    try post.sender.write([2], to: "/cafe\u{301}")
    let receipt = try post.send(["/caf\u{e9}", "/cafe\u{301}"])
    #expect(try receipt.files.map { try post.receiver.contents(at: $0.path) } == [[1], [2]])
  }

  @Test(arguments: [
    "", ".", "..", "a/b", "/", String(repeating: "x", count: 256), "two\nlines", "nul\0", "delete\u{7f}",
  ])
  func refusesASenderThatIsNoName(sender: String) throws {
    let post = try Post()
    try post.sender.write([1], to: "/Zebra")
    let before = try post.stateOfReceiver()
    expectError(.invalidName) { try post.send(["/Zebra"], as: sender) }
    #expect(try post.stateOfReceiver() == before)
  }

  @Test func takesTheLongestSenderAndRequestID() throws {
    let post = try Post()
    try post.sender.write([1], to: "/Zebra")
    let id = String(repeating: "r", count: 255)
    let receipt = try post.send(["/Zebra"], as: String(repeating: "s", count: 255), requestID: id)
    let reopened = try post.to.reopened()
    #expect(try reopened.contents(at: receipt.files[0].path) == [1])
    for wrong in ["", id + "r"] {
      expectError(.invalidArgument) { try post.send(["/Zebra"], requestID: wrong) }
    }
  }

  // MARK: Once

  @Test func aRequestIsDeliveredOnce() throws {
    let post = try Post()
    try post.sender.write([1, 2, 3], to: "/Zebra")
    let first = try post.send(["/Zebra"], requestID: "request 1")
    let state = try post.stateOfReceiver()
    let again = try post.send(["/Zebra"], requestID: "request 1")
    #expect(again.wasDeliveredBefore && again.files.isEmpty)
    #expect(again.directory == first.directory && again.byteCount == 3 && again.requestID == "request 1")
    #expect(try post.stateOfReceiver() == state)
    // Another request, and another sender's request of the same name, are others.
    #expect(try !post.send(["/Zebra"], requestID: "request 2").wasDeliveredBefore)
    #expect(try !post.send(["/Zebra"], as: "com.example.other", requestID: "request 1").wasDeliveredBefore)
    // It stays so when the receiver has dealt with the message, and after reopening.
    try post.receiver.remove(first.directory)
    let reopened = try post.to.reopened()
    var options = SendOptions()
    options.requestID = "request 1"
    let last = try post.sender.send(["/none"], to: reopened, sender: Post.sender, options: options)
    #expect(last.wasDeliveredBefore && last.directory == first.directory)
  }

  @Test func oneRequestFromManyThreadsIsDeliveredOnce() throws {
    let post = try Post()
    try post.sender.write(testBytes(100_000, seed: 1), to: "/Zebra")
    let deliveries = Guarded(0)
    let complaints = inThreads(4) { _ in
      do {
        let receipt = try post.send(["/Zebra"], requestID: "request")
        if !receipt.wasDeliveredBefore { deliveries.withLock { $0 += 1 } }
      } catch let error as ContainerError where error.code == .invalidArgument {}
      return nil
    }
    #expect(complaints == [])
    #expect(deliveries.withLock { $0 } == 1)
    #expect(try post.receiver.info().fileCount == 1)
    #expect(try post.receiver.verify().findings == [])
  }

  // MARK: Refusals

  @Test func aMissingAttachmentIsNoticedBeforeAnythingIsCopied() throws {
    let post = try Post()
    try post.sender.write(testBytes(100_000, seed: 1), to: "/Zebra")
    try post.receiver.write([1], to: "/kept")
    let before = try post.stateOfReceiver()
    let operations = post.to.io.log.count
    expectError(.noSuchFile, path: "/none") { try post.send(["/Zebra", "/none"]) }
    expectError(.noSuchFile, path: "/none/Zebra") { try post.send(["/Zebra", "/none/Zebra"]) }
    expectError(.notADirectory, path: "/Zebra/x") { try post.send(["/Zebra", "/Zebra/x"]) }
    expectError(.notADirectory, path: "/Zebra/") { try post.send(["/Zebra/"]) }
    expectError(.noSuchFile, path: "") { try post.send(["/Zebra", ""]) }
    expectError(.invalidName, path: "/\0") { try post.send(["/Zebra", "/\0"]) }
    expectError(.invalidArgument) { try post.send([]) }
    expectError(.invalidArgument) { try post.sender.send(["/Zebra"], to: post.sender, sender: "self") }
    #expect(try post.stateOfReceiver() == before)
    #expect(post.to.io.log.count == operations)
  }

  @Test func refusesAReceiverThatCannotReceive() throws {
    let post = try Post()
    try post.sender.write(testBytes(100_000, seed: 1), to: "/Zebra")
    // A file stands where its inbox is to be.
    try post.receiver.write([1], to: "/Inbox")
    let before = try post.stateOfReceiver()
    expectError(.notADirectory) { try post.send(["/Zebra"]) }
    #expect(try post.stateOfReceiver() == before)

    let reader = try post.to.reopened(mode: .readOnly)
    expectError(.readOnly) { try post.sender.send(["/Zebra"], to: reader, sender: Post.sender) }
    try reader.close()
    expectError(.closed) { try post.send(["/Zebra"]) }
    let again = try Container.open(io: post.to.io, credential: testCredential(), options: testOptions())
    try post.sender.close()
    expectError(.closed) { try post.sender.send(["/Zebra"], to: again, sender: Post.sender) }
    #expect(try again.tree() == ["/Inbox": [1]])
  }

  @Test func aDamagedSourceIsReportedUnderItsOwnName() throws {
    let post = try Post()
    try post.sender.write([1, 2, 3], to: "/good")
    try post.sender.write(testBytes(4 << 20, seed: 1), to: "/damaged")
    try post.sender.close()
    // In the third of the four units: some are staged when it comes out.
    let sender = try Container.open(
      io: post.from.io.damaged(fromEnd: 3 << 19), credential: testCredential(9), mode: .readOnly,
      options: testOptions())
    try post.receiver.write([1], to: "/kept")
    let before = try post.stateOfReceiver()
    expectError(.fileDamaged, path: "/damaged") {
      try sender.send(["/good", "/damaged"], to: post.receiver, sender: Post.sender)
    }
    #expect(try post.stateOfReceiver() == before)
    #expect(try post.receiver.verify().findings == [])
    // The same request, without it, is a new one.
    #expect(try sender.send(["/good"], to: post.receiver, sender: Post.sender).files.count == 1)
  }

  @Test func aFullDiskAtAnyMomentChangesNothing() throws {
    let post = try Post()
    try post.receiver.write(testBytes(1000, seed: 8), to: "/kept")
    try post.receiver.close()
    let image = post.to.io.image
    try post.sender.write(testBytes(2 << 20 + 1, seed: 1), to: "/Zebra")
    try post.sender.write(testBytes(10, seed: 2), to: "/Yak")
    func open(_ io: RecordingIO) throws -> Container {
      try Container.open(io: io, credential: testCredential(), options: testOptions())
    }
    func attempt(_ receiver: Container) throws -> Receipt {
      try post.sender.send(["/Zebra", "/Yak"], to: receiver, sender: Post.sender)
    }
    var failures = 0
    while true {
      let io = RecordingIO(image)
      let receiver = try open(io)
      let before = (try receiver.tree(), io.slabSizes, try receiver.info().slabByteCount)
      let spared = Guarded(failures)
      io.setFault { operation, _ in
        guard operation.takesSlabSpace else { return nil }
        return spared.withLock { spared in
          spared -= 1
          return spared < 0 ? ENOSPC : nil
        }
      }
      do {
        _ = try attempt(receiver)
        break
      } catch let error as ContainerError {
        #expect(error.code == .diskFull, "\(error)")
      }
      io.setFault(nil)
      #expect(try receiver.tree() == before.0)
      #expect(io.slabSizes == before.1)
      #expect(try receiver.info().slabByteCount == before.2)
      failures += 1
      // It opens unchanged, and the same opening goes on when there is space again.
      let reopened = try Container.open(
        io: RecordingIO(io.image), credential: testCredential(), options: testOptions())
      #expect(try reopened.tree() == before.0)
      #expect(try reopened.verify().findings == [])
      let receipt = try attempt(receiver)
      #expect(try receiver.contents(at: receipt.files[0].path) == testBytes(2 << 20 + 1, seed: 1))
      try receiver.close()
      #expect(try Container.verify(io: io, credential: testCredential()).findings == [])
    }
    // Every unit of the message was the one that failed.
    #expect(failures >= 3)
  }

  @Test(arguments: [0, 1, 3])
  func aCancelledMessageLeavesNothing(afterUnits units: Int) throws {
    let post = try Post()
    try post.sender.write(testBytes(6 << 20, seed: 1), to: "/Zebra")
    try post.receiver.write([1], to: "/kept")
    let before = try post.stateOfReceiver()
    let cancellation = Cancellation()
    if units == 0 { cancellation.cancel() }
    let count = Guarded(0)
    post.to.io.setFault { operation, _ in
      guard operation.takesSlabSpace else { return nil }
      let isReached = count.withLock { count in
        count += 1
        return count == units
      }
      if isReached { cancellation.cancel() }
      return nil
    }
    expectError(.cancelled) {
      try post.send(["/Zebra"], requestID: "request", control: BulkControl(cancellation: cancellation))
    }
    #expect(count.withLock { $0 } >= units)
    #expect(try post.stateOfReceiver() == before)
    #expect(try !post.send(["/Zebra"], requestID: "request").wasDeliveredBefore)
    #expect(try post.receiver.verify().findings == [])
  }

  // MARK: Meanwhile

  @Test func whatHappensToTheSourceMeanwhileDoesNotMatter() throws {
    let post = try Post()
    let bytes = testBytes(5 << 20, seed: 1)
    try post.sender.createDirectory("/Zebra")
    try post.sender.write(bytes, to: "/Zebra/removed")
    try post.sender.write(bytes.reversed(), to: "/replaced")
    // When the first unit arrives, the sender changes everything; ten are still to come.
    let isDone = Guarded(false)
    post.to.io.setFault { operation, _ in
      guard operation.takesSlabSpace, !isDone.withLock({ $0 }) else { return nil }
      isDone.withLock { $0 = true }
      do {
        try post.sender.remove("/Zebra")
        try post.sender.write([1], to: "/replaced")
        try post.sender.write(testBytes(3 << 20, seed: 2), to: "/other")
        try post.sender.synchronize()
      } catch {
        Issue.record(error)
      }
      return nil
    }
    let receipt = try post.send(["/Zebra", "/replaced"])
    #expect(try post.receiver.contents(at: receipt.directory + "/Zebra/removed") == bytes)
    #expect(try post.receiver.contents(at: receipt.directory + "/replaced") == bytes.reversed())
    #expect(try Set(post.sender.tree().keys) == ["/replaced", "/other"])
    #expect(try post.sender.verify().findings == [])
    #expect(try post.receiver.verify().findings == [])
  }

  @Test func theReceiverWorksMeanwhile() throws {
    let post = try Post()
    try post.sender.write(testBytes(4 << 20, seed: 1), to: "/Zebra")
    try post.receiver.write(testBytes(50_000, seed: 2), to: "/own")
    var reports = 0
    let receipt = try post.send(
      ["/Zebra"],
      control: BulkControl(progress: { _ in
        reports += 1
        do {
          #expect(try post.receiver.attributes(at: "/Inbox") == nil || reports > 1)
          try post.receiver.write(testBytes(20_000, seed: UInt64(reports)), to: "/new\(reports)")
          try post.receiver.remove("/own")
          try post.receiver.write(testBytes(50_000, seed: 2), to: "/own")
        } catch {
          Issue.record(error)
        }
      }))
    #expect(reports >= 2)
    #expect(try post.receiver.contents(at: receipt.files[0].path) == testBytes(4 << 20, seed: 1))
    #expect(try post.receiver.contents(at: "/new1") == testBytes(20_000, seed: 1))
    #expect(try post.receiver.verify().findings == [])
  }

  @Test func aMessageArrivesAllAtOnce() throws {
    let post = try Post(durability: .grouped)
    for i in 0..<20 { try post.sender.write(testBytes(5000, seed: UInt64(i)), to: "/file\(i)") }
    let attachments = (0..<20).map { "/file\($0)" }
    let isOver = Guarded(false)
    let complaints = inThreads(2) { i in
      if i == 0 {
        defer { isOver.withLock { $0 = true } }
        for _ in 0..<10 { try post.send(attachments) }
        return nil
      }
      while !isOver.withLock({ $0 }) {
        let count = try post.receiver.list("/", recursively: true).count { $0.attributes.kind == .file }
        if count % 20 != 0 { return "\(count) files are visible" }
      }
      return nil
    }
    #expect(complaints == [])
    #expect(try post.receiver.info().fileCount == 200)
  }

  @Test func aMessageIsDurableWhenItIsAcknowledged() throws {
    let post = try Post(durability: .grouped)
    try post.sender.write(testBytes(100_000, seed: 1), to: "/Zebra")
    let receipt = try post.send(["/Zebra"])
    let log = post.to.io.log
    let image = CrashPlan(operationCount: log.count, loss: .everythingUnsynchronized).replay(log)
    let found = try Container.open(
      io: RecordingIO(image), credential: testCredential(), options: testOptions())
    #expect(try found.contents(at: receipt.files[0].path) == testBytes(100_000, seed: 1))
  }

  @Test func aSenderOpenForReadingSendsWhileItsWriterGoesOn() throws {
    let directory = TemporaryDirectory()
    let place = directory.path + "/sender"
    let bytes = testBytes(3 << 20, seed: 1)
    let writer = try Container.create(at: place, credential: testCredential(9), options: testOptions())
    try writer.write(bytes, to: "/Zebra")
    let reader = try Container.open(
      at: place, credential: testCredential(9), mode: .readOnly, options: testOptions())
    let receiver = try Fixture().container
    try writer.remove("/Zebra")
    try writer.write([1], to: "/Zebra")
    let receipt = try reader.send(
      ["/Zebra"], to: receiver, sender: Post.sender,
      control: BulkControl(progress: { _ in
        do { try writer.write(testBytes(500_000, seed: 5), to: "/other") } catch { Issue.record(error) }
      }))
    #expect(try receiver.contents(at: receipt.files[0].path) == bytes)
    #expect(try writer.contents(at: "/Zebra") == [1])
    #expect(try writer.verify().findings == [])
  }

  @Test func aReceiverThatIsClosedMeanwhileTakesNothing() throws {
    let post = try Post()
    try post.sender.write(testBytes(6 << 20, seed: 1), to: "/Zebra")
    try post.receiver.write([1], to: "/kept")
    var operationCount: Int?
    expectError(.closed) {
      try post.send(
        ["/Zebra"],
        control: BulkControl(progress: { _ in
          guard operationCount == nil else { return }
          do { try post.receiver.close() } catch { Issue.record(error) }
          operationCount = post.to.io.log.count
        }))
    }
    // From then on the disk may be another opening's.
    #expect(post.to.io.log.count == operationCount)
    let reopened = try Container.open(io: post.to.io, credential: testCredential(), options: testOptions())
    #expect(try reopened.tree() == ["/kept": [1]])
    #expect(try reopened.verify().findings == [])
    #expect(post.to.io.slabSizes.values.allSatisfy { $0 < 1000 })
  }
}
