import AppKineticsTesting
import Foundation
import Locks
import SecureFiles
import Testing

@testable import AppKinetics

/// Files between two apps.
struct AttachmentTests {
  /// What objects are called with, functions read from a stream.
  @Test func aFunctionHearsWhatBecomesOfItsReply() async throws {
    try await withTestApps { world in
      let ends = Box<[ReplyEvent]>()
      let provider = try await world.app("com.example.provider")
      for path in ["/one", "/two"] { try provider.container.files.write(Data("file".utf8), toPath: path) }
      try provider.services.offer(echo) { request in
        let events = request.replyEvents
        Task { ends.put(await events.reduce(into: []) { $0.append($1) }) }
        switch request.params {
        case 0: return .noReply
        case 1: return .reply()
        default: return .reply(attachments: ["/one", "/two"])
        }
      }
      try await provider.services.start()
      let consumer = try await world.app("com.example.consumer")
      try await consumer.services.start()
      let expected: [[ReplyEvent]] = [
        [], [.didFinishSending],
        [
          .didStartSending(attachment: "/one"), .didStartSending(attachment: "/two"), .didFinishSending,
        ],
      ]
      for (params, events) in expected.enumerated() {
        _ = try await consumer.services.call(
          ServiceRequest(echo, "echo", params: .integer(Int64(params))), to: provider.id)
        #expect(await ends.next() == events)
      }
    }
  }

  final class Recorder: ServiceProvider {
    enum Call: Hashable, Sendable {
      case willReceiveCount(Int)
      case willReceive(String, UInt64)
      case didReceive([String])
      case didStartSending(String)
      case didFinishSending(ServiceValue?, [String])
    }

    let calls = Box<Call>()
    let answer: @Sendable (IncomingRequest) -> Void

    init(_ answer: @escaping @Sendable (IncomingRequest) -> Void) { self.answer = answer }

    func willReceive(attachmentCount: Int, for request: RequestID, from sender: ApplicationID) {
      calls.put(.willReceiveCount(attachmentCount))
    }
    func willReceive(
      attachment path: String, byteCount: UInt64, for request: RequestID, from sender: ApplicationID
    ) {
      calls.put(.willReceive(path, byteCount))
    }
    func didReceive(_ request: IncomingRequest) {
      calls.put(.didReceive(request.attachments))
      answer(request)
    }
    func didStartSending(attachment path: String, for request: IncomingRequest) {
      calls.put(.didStartSending(path))
    }
    func didFinishSending(
      _ params: ServiceValue?, attachments: [String], for request: IncomingRequest
    ) { calls.put(.didFinishSending(params, attachments)) }
  }

  @Test func bringsFilesBothWays() async throws {
    try await withTestApps { world in
      let provider = try await world.app("com.example.provider")
      try provider.container.files.write(Data("answer".utf8), toPath: "/answer.txt")
      let recorder = Recorder { request in
        Task { try await request.reply("done", attachments: ["/answer.txt"]) }
      }
      try provider.services.offer([echo], provider: recorder)
      try await provider.services.start()
      let consumer = try await world.app("com.example.consumer")
      try consumer.container.files.createDirectory(atPath: "/folder", withIntermediateDirectories: true)
      try consumer.container.files.write(Data("one".utf8), toPath: "/folder/one")
      try consumer.container.files.write(Data(), toPath: "/empty")
      try await consumer.services.start()

      let sent = try await consumer.services.send(
        ServiceRequest(echo, "echo", attachments: ["/folder", "/empty"]), to: provider.id)
      try await sent.delivered()
      // The receiver has its own copies.
      try consumer.container.files.removeItem(atPath: "/folder")
      let reply = try #require(try await sent.reply())

      var calls: [Recorder.Call] = []
      while calls.count < 6 { calls.append(try #require(await recorder.calls.next())) }
      guard case .didReceive(let paths) = calls[3] else { throw ServicesError(.general) }
      #expect(
        calls == [
          .willReceiveCount(2), .willReceive(paths[0], 3), .willReceive(paths[1], 0), .didReceive(paths),
          .didStartSending("/answer.txt"), .didFinishSending("done", ["/answer.txt"]),
        ])
      #expect(paths[0].hasPrefix("/Inbox/com.example.consumer/") && paths[0].hasSuffix("/folder/one"))
      #expect(try provider.container.files.data(atPath: paths[0]) == Data("one".utf8))
      #expect(try provider.container.files.data(atPath: paths[1]).isEmpty)

      #expect(reply.attachments.count == 1)
      #expect(try consumer.container.files.data(atPath: reply.attachments[0]) == Data("answer".utf8))
      var events: [RequestEvent] = []
      for await event in sent.events { events.append(event) }
      #expect(
        events == [
          .didStartSending(attachment: "/folder/one"), .didStartSending(attachment: "/empty"),
          .didFinishSending,
          .willReceiveAttachments(count: 1), .willReceive(attachment: reply.attachments[0], byteCount: 6),
          .didReceive(reply),
        ])
      #expect(sent.progress.completedUnitCount == sent.progress.totalUnitCount)
    }
  }

  @Test func showsThatARequestWithEmptyFoldersAloneHasArrived() async throws {
    try await withTestApps { world in
      let (provider, consumer) = try await world.echoPair()
      try consumer.container.files.createDirectory(atPath: "/empty", withIntermediateDirectories: true)
      let sent = try await consumer.send(
        ServiceRequest(echo, "echo", attachments: ["/empty"]), to: provider.id)
      let progress = sent.progress
      _ = try await sent.reply()
      #expect(progress.isFinished && sent.transfer.fileCount == 0)
    }
  }

  /// Holes are not sent, and take no room at either side.
  @Test func bringsAFileThatIsLargerThanTheDisk() async throws {
    try await withTestApps { world in
      let provider = try await world.app("com.example.provider") { $0.attachmentByteCountMax = nil }
      try provider.services.offer(echo) { .reply(attachments: $0.attachments) }
      try await provider.services.start()
      let consumer = try await world.app("com.example.consumer") { $0.attachmentByteCountMax = nil }
      let data = Data((0..<(1 << 20)).map { UInt8(truncatingIfNeeded: $0 / 251) })
      let (middle, size): (UInt64, UInt64) = (3 << 50, 8 << 50)
      try consumer.container.files.write(data, toPath: "/huge")
      let file = try consumer.container.store.openFile("/huge", .readWrite)
      _ = try data.withUnsafeBytes { try file.write($0, at: middle) }
      try file.truncate(to: size)
      try file.close()
      try await consumer.services.start()
      let reply = try #require(
        try await consumer.services.call(
          ServiceRequest(echo, "echo", attachments: ["/huge"]), to: provider.id))
      let received = try consumer.container.store.openFile(reply.attachments[0], .read)
      defer { try? received.close() }
      func read(_ offset: UInt64) throws -> Data {
        var bytes = Data(count: data.count)
        let count = try bytes.withUnsafeMutableBytes { try received.read(at: offset, into: $0) }
        return bytes.prefix(count)
      }
      #expect(try consumer.container.store.attributes(at: reply.attachments[0])?.size == size)
      for offset in [0, middle] { #expect(try read(offset) == data) }
      for offset in [UInt64(data.count), middle - UInt64(data.count), size - UInt64(data.count)] {
        #expect(try read(offset) == Data(count: data.count))
      }
      // Its own file and what came of it.
      try await consumer.container.synchronize()
      #expect(try consumer.container.store.info().liveByteCount < 5 << 20)
    }
  }

  /// The limit counts what the app would read, holes too.
  @Test func countsHolesAgainstTheLimitOfBytes() async throws {
    try await withTestApps { world in
      let provider = try await world.app("com.example.provider") { $0.attachmentByteCountMax = 1 << 40 }
      try provider.services.offer(echo) { .reply($0.params) }
      try await provider.services.start()
      let consumer = try await world.app("com.example.consumer")
      try await consumer.services.start()
      for (size, isTaken) in [(UInt64(1 << 40), true), (1 << 40 + 1, false)] {
        try consumer.container.files.write(Data([1]), toPath: "/sparse")
        let file = try consumer.container.store.openFile("/sparse", .readWrite)
        try file.truncate(to: size)
        try file.close()
        let sent = try await consumer.services.send(
          ServiceRequest(echo, "echo", params: 1, attachments: ["/sparse"]), to: provider.id)
        if isTaken {
          #expect(try await sent.reply()?.params == 1)
        } else {
          let error = await #expect(throws: ServicesError.self) { try await sent.reply() }
          #expect(error?.code == .limitExceeded)
        }
      }
    }
  }

  /// What comes with an error is the app's, too.
  @Test func bringsFilesWithAnError() async throws {
    try await withTestApps { world in
      let provider = try await world.app("com.example.provider")
      try provider.container.files.write(Data("log".utf8), toPath: "/log.txt")
      let failure = ServiceReplyError(
        code: 7, text: "see the log", details: ["line": 3], attachments: ["/log.txt"])
      try provider.services.offer(echo) { request in
        switch request.params {
        case "reply":
          try await request.reply(error: failure)
          return .noReply
        case "missing": throw ServiceReplyError(code: 8, text: "gone", attachments: ["/none"])
        default: throw failure
        }
      }
      try await provider.services.start()
      let consumer = try await world.app("com.example.consumer")
      try await consumer.services.start()
      for way: ServiceValue in ["reply", "throw"] {
        let sent = try await consumer.services.send(
          ServiceRequest(echo, "echo", params: way), to: provider.id)
        let error = try #require(await #expect(throws: ServiceReplyError.self) { try await sent.reply() })
        #expect(error.code == 7 && error.text == "see the log" && error.details == ["line": 3])
        #expect(error.domain == echo.serviceID && error.attachments == sent.replyAttachments)
        let path = try #require(error.attachments.first)
        #expect(path.hasPrefix("/Inbox/com.example.provider/") && path.hasSuffix("/log.txt"))
        #expect(try consumer.container.files.data(atPath: path) == Data("log".utf8))
        var events: [RequestEvent] = []
        for await event in sent.events { events.append(event) }
        #expect(events.last == .didReceiveError(error))
        try await sent.removeReplyAttachments()
        #expect(!consumer.container.files.fileExists(atPath: path))
        try await sent.removeReplyAttachments()
      }
      let sent = try await consumer.services.send(
        ServiceRequest(echo, "echo", params: "missing"), to: provider.id)
      let error = try #require(await #expect(throws: ServiceReplyError.self) { try await sent.reply() })
      #expect(error.code == 8 && error.text == "gone" && error.attachments.isEmpty)
    }
  }

  @Test func showsWhatArrives() async throws {
    try await withTestApps { world in
      let provider = try await world.app("com.example.provider")
      try provider.container.files.write(Data("answer".utf8), toPath: "/answer.txt")
      try provider.services.offer(echo) { _ in .reply(attachments: ["/answer.txt"]) }
      var atProvider = provider.services.arrivals.makeAsyncIterator()
      try await provider.services.start()
      let consumer = try await world.app("com.example.consumer")
      let bytes = Data(repeating: 7, count: 3 << 20)
      try consumer.container.files.write(bytes, toPath: "/large")
      var atConsumer = consumer.services.arrivals.makeAsyncIterator()
      try await consumer.services.start()
      let sent = try await consumer.services.send(
        ServiceRequest(echo, "echo", attachments: ["/large"]), to: provider.id)
      let request = try #require(await atProvider.next())
      try await request.ended()
      #expect(request.request == sent.id && !request.isReply && request.sender == consumer.id)
      #expect(request.fileCount == 1 && request.byteCount == UInt64(bytes.count))
      #expect(request.bytesDone == request.byteCount && request.progress.isFinished)
      let reply = try #require(await atConsumer.next())
      try await reply.ended()
      #expect(
        reply.request == sent.id && reply.isReply && reply.sender == provider.id && reply.byteCount == 6)
      #expect(await !reply.cancel())
      await provider.services.stop()
      #expect(await atProvider.next() == nil)
    }
  }

  @Test(arguments: ["sender", "receiver", "progress", "stop"])
  func saysThatAnArrivalHasEnded(by whom: String) async throws {
    try await withTestApps { world in
      let provider = try await world.app("com.example.provider")
      try provider.services.offer(echo) { _ in .noReply }
      var arrivals = provider.services.arrivals.makeAsyncIterator()
      try await provider.services.start()
      let consumer = try await world.app("com.example.consumer")
      try consumer.container.files.write(Data(repeating: 7, count: 32 << 20), toPath: "/large")
      try await consumer.services.start()
      let sent = try await consumer.services.send(
        ServiceRequest(echo, "tell", attachments: ["/large"]), to: provider.id)
      let transfer = try #require(await arrivals.next())
      switch whom {
      case "sender": await sent.cancel()
      case "receiver": await transfer.cancel()
      case "progress": transfer.progress.cancel()
      default: await provider.services.stop()
      }
      // Or it was too late.
      do {
        try await transfer.ended()
        try await sent.delivered()
      } catch let error as ServicesError {
        #expect(error.code == (whom == "stop" ? .connectionLost : .cancelled))
      }
    }
  }

  @Test func removesTheFilesOfARequestWhenAsked() async throws {
    try await withTestApps { world in
      let provider = try await world.app("com.example.provider")
      try provider.services.offer(echo) { request in
        let isThere = request.attachments.allSatisfy(provider.container.files.fileExists)
        try await request.removeAttachments()
        try await request.removeAttachments()
        let isGone = !request.attachments.contains(where: provider.container.files.fileExists)
        return .reply(.boolean(isThere && isGone && request.attachments.count == 2))
      }
      try await provider.services.start()
      let consumer = try await world.app("com.example.consumer")
      // The mark makes one character of itself and the slash.
      for name in ["/\u{301}one", "/two"] { try consumer.container.files.write(Data("1".utf8), toPath: name) }
      try await consumer.services.start()
      let reply = try await consumer.services.call(
        ServiceRequest(echo, "echo", attachments: ["/\u{301}one", "/two"]), to: provider.id)
      #expect(try reply?.decodeParams(as: Bool.self) == true)
    }
  }

  @Test func copiesNothingForARequestThatIsRefused() async throws {
    try await withTestApps { world in
      let provider = try await world.app("com.example.provider")
      try provider.services.offer(greetings) { _ in .noReply }
      try await provider.services.start()
      let consumer = try await world.app("com.example.consumer")
      try consumer.container.files.write(Data("one".utf8), toPath: "/one")
      try await consumer.services.start()
      await #expect(throws: ServicesError(.serviceNotFound)) {
        try await consumer.services.call(ServiceRequest(echo, "echo", attachments: ["/one"]), to: provider.id)
      }
      #expect(!provider.container.files.fileExists(atPath: "/Inbox"))
    }
  }

  @Test func leavesNothingOfACancelledDelivery() async throws {
    try await withTestApps { world in
      let provider = try await world.app("com.example.provider")
      let received = Box<[String]>()
      try provider.services.offer(echo) { request in
        received.put(request.attachments)
        return .noReply
      }
      try await provider.services.start()
      let consumer = try await world.app("com.example.consumer")
      let bytes = Data(repeating: 1, count: 64 << 20)
      try consumer.container.files.write(bytes, toPath: "/large")
      try await consumer.services.start()
      let sent = try await consumer.services.send(
        ServiceRequest(echo, "tell", attachments: ["/large"]), to: provider.id)
      if await sent.cancel() {
        #expect(sent.status == .cancelled)
        await #expect(throws: ServicesError(.cancelled)) { try await sent.delivered() }
        #expect(!provider.container.files.fileExists(atPath: "/Inbox"))
        #expect(try provider.staged().isEmpty)
        #expect(received.values.isEmpty)
      } else {
        try await sent.delivered()
        #expect(await received.next()?.count == 1)
      }
      #expect(try await consumer.services.outbox().isEmpty)
    }
  }

  @Test func showsHowFarAReplyIsAndTakesItBack() async throws {
    try await withTestApps { world in
      final class Taking: ServiceProvider {
        let received = Box<IncomingRequest>()
        func didReceive(_ request: IncomingRequest) { received.put(request) }
      }
      let taking = Taking()
      let provider = try await world.start("com.example.provider") { try $0.offer([echo], provider: taking) }
      try provider.put(Data(repeating: 1, count: 3 << 20), at: "/large")
      try provider.put(Data(repeating: 1, count: 5), at: "/small")
      let byteCount = UInt64((3 << 20) + 5)
      let consumer = try await world.start("com.example.consumer")
      let sent = try await consumer.services.send(ServiceRequest(echo, "echo"), to: provider.id)
      let first = try #require(await taking.received.next())
      let progress = first.replyProgress
      #expect(first.replyTransfer == TransferProgress() && progress.isIndeterminate)
      var events = first.replyEvents.makeAsyncIterator()
      try await first.reply(attachments: ["/large", "/small"])
      #expect(try await sent.reply()?.attachments.count == 2)
      while let event = await events.next(), event != .didFinishSending {}
      #expect(first.replyTransfer.bytesDone == byteCount && first.replyTransfer.filesSent == 2)
      #expect(
        [progress.completedUnitCount, progress.totalUnitCount] == [Int64(byteCount), Int64(byteCount)])
      // The consumer is not there to take the second one.
      _ = try await consumer.services.send(ServiceRequest(echo, "echo"), to: provider.id)
      let second = try #require(await taking.received.next())
      await consumer.services.stop()
      var ends = second.replyEvents.makeAsyncIterator()
      try await second.reply(attachments: ["/large"])
      #expect(second.replyTransfer.byteCount == 3 << 20)
      second.replyProgress.cancel()
      #expect(await ends.next() == .didFail(ServicesError(.cancelled)))
      #expect(try await provider.services.outbox().isEmpty)
    }
  }

  /// Its progress was cancelled before there was a reply.
  @Test func doesNotSendAReplyThatIsCancelledBefore() async throws {
    try await withTestApps { world in
      let events = Box<[ReplyEvent]>()
      let provider = try await world.start("com.example.provider") {
        try $0.offer(echo) { request in
          if request.params == "reply" { return .reply(attachments: ["/file"]) }
          request.replyProgress.cancel()
          let stream = request.replyEvents
          Task {
            var all: [ReplyEvent] = []
            for await event in stream { all.append(event) }
            events.put(all)
          }
          return .reply(attachments: ["/file"])
        }
      }
      try provider.put("contents", at: "/file")
      let consumer = try await world.start("com.example.consumer")
      var arrivals = consumer.services.arrivals.makeAsyncIterator()
      // From the second one on, messages are offered where they are written down.
      for _ in 0..<2 {
        let sent = try await consumer.services.send(
          ServiceRequest(echo, "echo", params: "reply"), to: provider.id)
        #expect(try await sent.reply()?.attachments.count == 1)
        #expect(await arrivals.next()?.request == sent.id)
        let fileCount = try consumer.inboxFiles().count
        await #expect(throws: PeerOutbox.replyLost) {
          try await consumer.services.call(ServiceRequest(echo, "echo"), to: provider.id)
        }
        #expect(await events.next()?.last == .didFail(ServicesError(.cancelled)))
        #expect(try await provider.services.outbox().isEmpty && consumer.inboxFiles().count == fileCount)
      }
    }
  }

  /// A part of its file is there by then. On a busy machine one may be faster than its cancel; then the next one is tried.
  @Test func leavesNothingOfADeliveryThatIsCancelledInItsMiddle() async throws {
    final class Cancelling: ServiceProvider {
      let sent = Guarded<SentRequest?>(nil)
      func willReceive(
        attachment path: String, byteCount: UInt64, for request: RequestID, from sender: ApplicationID
      ) { sent.withLock { $0 }?.progress.cancel() }
      func didReceive(_ request: IncomingRequest) {}
    }
    try await withTestApps { world in
      let cancelling = Cancelling()
      let provider = try await world.start("com.example.provider") {
        try $0.offer([echo], provider: cancelling)
      }
      let consumer = try await world.start("com.example.consumer")
      try consumer.put(Data(repeating: 1, count: 64 << 20), at: "/large")
      // There is a channel.
      _ = try? await consumer.services.call(
        ServiceRequest(echo, "none").withoutDefinition, to: provider.id)
      var arrivals = provider.services.arrivals.makeAsyncIterator()
      for deliveredCount in 0..<5 {
        // So that it does not begin before it is known whom to cancel.
        try await provider.services.setState(.locked)
        let sent = try await consumer.services.send(
          ServiceRequest(echo, "tell", attachments: ["/large"]), to: provider.id)
        let transfer = try #require(await arrivals.next())
        cancelling.sent.withLock { $0 = sent }
        try await provider.services.setState(.running)
        do {
          try await sent.delivered()
          continue
        } catch ServicesError.cancelled {}
        await #expect {
          try await transfer.ended()
        } throws: {
          ($0 as? ServicesError)?.code == .cancelled
        }
        #expect(transfer.bytesDone > 0 && transfer.bytesDone < 64 << 20)
        #expect(try provider.staged().isEmpty && provider.inboxFiles().count == deliveredCount)
        #expect(try await consumer.services.outbox().isEmpty)
        return
      }
      Issue.record("each of them was delivered before it could be cancelled")
    }
  }

  /// Also when it was about to be offered for the first time: then it is gone from the outbox at once.
  @Test func saysOfEveryCancelledDeliveryThatItWasCancelled() async throws {
    try await withTestApps { world in
      let provider = try await world.app("com.example.provider")
      try provider.services.offer(echo) { _ in .noReply }
      try await provider.services.start()
      for round in 0..<60 {
        // Each without a channel, so that what is sent was never offered.
        let consumer = try await world.app("com.example.consumer\(round)")
        try consumer.container.files.write(Data(repeating: 1, count: 100_000), toPath: "/file")
        try await consumer.services.start()
        let sent = try await consumer.services.send(
          ServiceRequest(echo, "tell", attachments: ["/file"]), to: provider.id)
        try await Task.sleep(for: .microseconds(100 * round))
        if await sent.cancel() {
          await #expect(throws: ServicesError(.cancelled)) { try await sent.delivered() }
        } else {
          try await sent.delivered()
        }
        #expect(try await consumer.services.outbox().isEmpty)
        await consumer.services.stop()
      }
    }
  }

  @Test func showsNoFileBeforeTheMessageIsThere() async throws {
    final class Looking: ServiceProvider {
      let app: TestApp
      let seen = Box<Bool>()
      init(_ app: TestApp) { self.app = app }
      func willReceive(
        attachment path: String, byteCount: UInt64, for request: RequestID, from sender: ApplicationID
      ) {
        seen.put(app.container.files.fileExists(atPath: path))
      }
      func didReceive(_ request: IncomingRequest) {
        for path in request.attachments { seen.put(app.container.files.fileExists(atPath: path)) }
      }
    }
    try await withTestApps { world in
      let provider = try await world.app("com.example.provider")
      let looking = Looking(provider)
      try provider.services.offer([echo], provider: looking)
      try await provider.services.start()
      let consumer = try await world.app("com.example.consumer")
      // So large that what was announced is looked at long before it is there.
      try consumer.container.files.write(Data(repeating: 1, count: 32 << 20), toPath: "/large")
      try await consumer.services.start()
      _ = try await consumer.services.send(
        ServiceRequest(echo, "tell", attachments: ["/large"]), to: provider.id)
      #expect(await looking.seen.next() == false)
      #expect(await looking.seen.next() == true)
    }
  }

  @Test func hearsOfAFileWhenItBegins() async throws {
    final class Watching: ServiceProvider {
      let transfer = Guarded<IncomingTransfer?>(nil)
      let isKnown = DispatchSemaphore(value: 0)
      let begun = Box<(path: String, bytesDone: UInt64)>()
      let received = Box<[String]>()
      func willReceive(attachmentCount: Int, for request: RequestID, from sender: ApplicationID) {
        isKnown.wait()
      }
      func willReceive(
        attachment path: String, byteCount: UInt64, for request: RequestID, from sender: ApplicationID
      ) {
        begun.put((path, transfer.withLock { $0?.bytesDone } ?? 0))
      }
      func didReceive(_ request: IncomingRequest) { received.put(request.attachments) }
    }
    try await withTestApps { world in
      let provider = try await world.app("com.example.provider")
      let watching = Watching()
      let arrivals = provider.services.arrivals
      let followed = Box<[ArrivingAttachment]>()
      let listening = Task {
        for await transfer in arrivals {
          watching.transfer.withLock { $0 = transfer }
          watching.isKnown.signal()
          var files: [ArrivingAttachment] = []
          for await file in transfer.attachments { files.append(file) }
          followed.put(files)
        }
      }
      try provider.services.offer([echo], provider: watching)
      try await provider.services.start()
      let consumer = try await world.app("com.example.consumer")
      let sizes = [24 << 20, 0, 8 << 20, 0]
      let names = sizes.indices.map { "/file\($0)" }
      for (name, size) in zip(names, sizes) {
        try consumer.container.files.write(Data(repeating: 1, count: size), toPath: name)
      }
      try await consumer.services.start()
      let sent = try await consumer.services.send(
        ServiceRequest(echo, "tell", attachments: names), to: provider.id)
      try await sent.delivered()
      let paths = try #require(await watching.received.next())
      let begun = watching.begun.values
      #expect(begun.map(\.path) == paths)
      // The first frame of a file has come, or the files before one without contents.
      for (file, least) in zip(begun, [1, 24 << 20, 24 << 20 + 1, 32 << 20]) {
        #expect(file.bytesDone >= UInt64(least), "\(file.path)")
      }
      // Also those that began before they were followed.
      let files = try #require(await followed.next())
      let all = zip(paths, sizes).map { ArrivingAttachment(path: $0, byteCount: UInt64($1)) }
      #expect(files == all)
      #expect(watching.transfer.withLock { $0?.attachment?.path } == paths.last)
      listening.cancel()
    }
  }

  @Test func answersASmallRequestWhileALargeOneIsUnderWay() async throws {
    try await withTestApps { world in
      let provider = try await world.app("com.example.provider")
      try provider.services.offer(echo) { .reply($0.params) }
      try await provider.services.start()
      let consumer = try await world.app("com.example.consumer")
      try consumer.container.files.write(Data(repeating: 1, count: 128 << 20), toPath: "/large")
      try await consumer.services.start()
      let large = try await consumer.services.send(
        ServiceRequest(echo, "echo", attachments: ["/large"]), to: provider.id)
      for i in 0..<20 {
        let value = ServiceValue.integer(Int64(i))
        #expect(
          try await consumer.services.call(ServiceRequest(echo, "echo", params: value), to: provider.id)?
            .params == value)
      }
      try await large.delivered()
      #expect(large.transfer.bytesDone == 128 << 20 && large.transfer.filesSent == 1)
      let file = try #require(large.transfer.file)
      #expect(file.path == "/large" && file.bytesSent == 128 << 20 && file.byteCount == 128 << 20)
    }
  }

  /// Each side says for itself what it takes.
  @Test(arguments: [(true, true), (true, false), (false, true), (false, false)])
  func bringsTheSameWhateverBothSidesHave(memory: (Bool, Bool)) async throws {
    func random(_ count: Int) -> Data {
      var generator = SystemRandomNumberGenerator()
      let words = (0...count / 8).map { _ in generator.next() as UInt64 }
      return words.withUnsafeBytes { Data($0.prefix(count)) }
    }
    try await withTestApps { world in
      let provider = try await world.app("com.example.provider") {
        $0.takesSharedMemory = memory.0
      }
      try provider.services.offer(echo) { .reply($0.params, attachments: $0.attachments) }
      try await provider.services.start()
      let consumer = try await world.app("com.example.consumer") {
        $0.takesSharedMemory = memory.1
      }
      let files = [random(5_000_001), Data([1]), random(70_000)]
      for (index, bytes) in files.enumerated() {
        try consumer.container.files.write(bytes, toPath: "/\(index)")
      }
      try await consumer.services.start()
      let sent = try await consumer.services.send(
        ServiceRequest(echo, "echo", attachments: files.indices.map { "/\($0)" }), to: provider.id)
      let reply = try #require(try await sent.reply())
      #expect(reply.attachments.map { consumer.container.files.contents(atPath: $0) } == files)
    }
  }

  @Test func bringsManySmallFilesInOneMessage() async throws {
    try await withTestApps { world in
      let provider = try await world.app("com.example.provider")
      try provider.services.offer(echo) { .reply(.integer(Int64($0.attachments.count))) }
      try await provider.services.start()
      let consumer = try await world.app("com.example.consumer")
      try consumer.container.files.createDirectory(atPath: "/folder", withIntermediateDirectories: true)
      for i in 0..<2000 {
        try consumer.container.files.write(Data("\(i)".utf8), toPath: "/folder/\(i)")
      }
      try await consumer.services.start()
      let sent = try await consumer.services.send(
        ServiceRequest(echo, "echo", attachments: ["/folder"]), to: provider.id)
      #expect(try await sent.reply()?.params == 2000)
      let inbox = try #require(provider.inbox(of: consumer).first)
      let place = "/Inbox/\(consumer.id)/\(inbox)/folder"
      #expect(try provider.container.files.contentsOfDirectory(atPath: place).count == 2000)
      #expect(try provider.container.files.data(atPath: place + "/1234") == Data("1234".utf8))
    }
  }
}
