import AppKinetics
import ArgumentParser
import ContainerStore
import Foundation
import SecureFiles

extension SendCommand {
  /// Sends to an app that runs. What is in the outbox stays there when this program is killed; a signal takes it back.
  func sendThroughOutbox(to receiver: ApplicationID) throws {
    var app = AppOptions()
    app.dir = sender
    app.id = from
    (app.name, app.user) = (nil, nil)
    app.broker = broker
    app.credential = credential
    let items = items
    let (begin, isQuiet, waits) = (ContinuousClock.now, bulk.quiet, !noWait)
    // What the app offers at other times stays registered.
    let bar = bulk.sharedBar("send")
    defer { bar.clear() }
    let sent = try app.withServices(registers: false, containerOptions: bulk.containerOptions()) {
      services, container in
      let request = Self.request(items, in: container)
      return try AsyncWork.run {
        try await services.start()
        do {
          let sent = try await services.send(request, to: receiver)
          if waits {
            let notice = Task {
              try await WaitNotice.say(
                of: sent, services, "the message waits in the outbox", write: bar.write)
            }
            defer { notice.cancel() }
            try await Self.wait(for: sent, bar)
            await Self.awaitAnswer(to: sent)
          }
          return sent
        } catch let error as ServicesError where error == ServicesError(.applicationNotFound) {
          throw ServicesError(.applicationNotFound, detail: await Self.missing(receiver, services))
        }
      }
    }
    bar.clear()
    let description = SentDescription(sent, seconds: begin.secondsSince, isDelivered: waits)
    if json {
      try StandardOutput.write(JSONText.of(description))
    } else if !isQuiet {
      try StandardOutput.write(description.text)
    }
  }

  /// One file, or several: of a folder nobody knows yet how many.
  private static func request(_ items: [String], in container: SecureContainer) -> ServiceRequest {
    var isDirectory: ObjCBool = false
    let isOne =
      items.count == 1 && container.files.fileExists(atPath: items[0], isDirectory: &isDirectory)
      && !isDirectory.boolValue
    let definition = (isOne ? WellKnownService.transferFile : .saveFiles).definition
    return ServiceRequest(
      definition, isOne ? "transferFile" : "saveFiles", attachments: items)
  }

  /// What is wrong with an app that is not found; nil for one that has nothing registered, as far as can be seen.
  private static func missing(_ receiver: ApplicationID, _ services: AppServices) async -> String? {
    let found = try? await services.providers().first { $0.application == receiver }
    return found.map { _ in "\(receiver) does not run, and was not started" }
  }

  /// Most apps answer at once: who is not there any more gets the answer when it runs again.
  private static func awaitAnswer(to sent: SentRequest) async {
    await withTaskGroup(of: Void.self) { group in
      group.addTask { try? await Task.sleep(for: answerTime) }
      group.addTask {
        for await _ in sent.events {}
        // The command has no use for files.
        try? await sent.removeReplyAttachments()
      }
      await group.next()
      group.cancelAll()
    }
  }

  private static let answerTime = Duration.seconds(2)

  private static func wait(for sent: SentRequest, _ bar: SharedProgressBar) async throws {
    let begin = ContinuousClock.now
    let drawing = Task {
      while bar.isDrawn, !Task.isCancelled {
        let transfer = sent.transfer
        bar.show(
          ProgressState(
            bytesDone: transfer.bytesDone, byteCount: transfer.byteCount, seconds: begin.secondsSince))
        try await Task.sleep(for: .milliseconds(100))
      }
    }
    defer { drawing.cancel() }
    try await withTaskCancellationHandler {
      try await sent.delivered()
    } onCancel: {
      drawing.cancel()
      bar.clear()
      Task {
        let note = WaitNote(
          "waiting for the receiver, which may have a part and decides; another signal leaves the message in the outbox"
        )
        await sent.cancel()
        note.end()
      }
    }
  }
}

private struct SentDescription: Encodable {
  var requestID: String
  var app: String
  var fileCount: UInt64
  var byteCount: UInt64
  var seconds: Double
  var bytesPerSecond: Double
  /// Else it is in the outbox.
  var isDelivered: Bool

  init(_ sent: SentRequest, seconds: Double, isDelivered: Bool) {
    requestID = sent.id.description
    app = sent.application.text
    fileCount = sent.transfer.fileCount
    byteCount = sent.transfer.byteCount
    self.seconds = seconds
    self.isDelivered = isDelivered
    bytesPerSecond = seconds > 0 && isDelivered ? Double(byteCount) / seconds : 0
  }

  var text: String {
    let what = "\(Quantity.count(Int(clamping: fileCount), "file")), \(Quantity.bytes(byteCount))"
    guard isDelivered else {
      return "\(what) in the outbox for \(PrintableText.of(app)), request \(requestID)\n"
    }
    return "\(what) to \(PrintableText.of(app)) in \(Quantity.decimal(seconds, digits: 3)) s "
      + "(\(Quantity.rate(bytesPerSecond))), request \(requestID)\n"
  }
}
