import ArgumentParser
import ContainerStore
import ServiceValues

struct SendCommand: ParsableCommand, ReportingCommand {
  static let configuration = CommandConfiguration(
    commandName: "send", abstract: "Sends files and folders from one app's container into another's inbox.",
    usage: """
      dynamics send <dir-a> <dir-b> <path> ... --from <app-id> [<options>]
      dynamics send <dir-a> <path> ... --from <app-id> --to <app-id> [<options>]
      """,
    discussion: """
      Everything arrives in one step, as /Inbox/APP_ID/TIME/original path in the receiver. No plaintext touches the disk.

      With DIR-B, both containers are opened here. With --to, the receiver is an app that runs, or that the broker can start: it gets a request of \
      transfer-file, or of save-files when there are several, and opens its container itself. Such a message waits in the outbox of DIR-A until the \
      receiver has it, also when this program ends before: `dynamics outbox` shows it, goes on with it, and takes it back.
      """)

  @Argument(help: ArgumentHelp("The sender's container.", valueName: "dir-a"), completion: .directory)
  var sender: String

  @Argument(
    help: ArgumentHelp(
      "The receiver's container (not with --to), and the files and folders to send.", valueName: "path"))
  var items: [String]

  @Option(help: ArgumentHelp("The sender's application id.", valueName: "app-id"))
  var from: String

  @Option(help: ArgumentHelp("The application id of a receiver that runs.", valueName: "app-id"))
  var to: String?

  @Flag(help: "With --to: ends when the message is in the outbox.")
  var noWait = false

  @OptionGroup var credential: CredentialOptions
  @OptionGroup var receiverCredential: ReceiverCredentialOptions
  @OptionGroup var bulk: BulkOptions
  @OptionGroup var broker: BrokerSocketOptions

  @Option(
    name: .customLong("request-id"),
    help: ArgumentHelp(
      "Names the request: the receiver takes each name only once.", valueName: "id"))
  var requestID: String?

  @Flag(
    name: .customLong("no-barrier"),
    help: "Does not wait for the receiver's disk: after a power loss the delivery may be missing, as a whole."
  )
  var hasNoBarrier = false

  @Option(
    help: ArgumentHelp(
      "Opens one in n sealed segments again and compares it; 0: none, 1: all.", valueName: "n"))
  var checkInterval = SendOptions().checkInterval

  @Flag(help: "Prints one JSON object.")
  var json = false

  var reportsJSON: Bool { json }

  func validate() throws {
    if to == nil, items.count < 2 {
      throw ValidationError("Name the receiver's container and what is sent, or the receiver with --to.")
    }
    if to == nil, noWait { throw ValidationError("--no-wait goes with --to.") }
    if to != nil, hasNoBarrier || requestID != nil {
      throw ValidationError("--no-barrier and --request-id do not go with --to.")
    }
    if let to {
      try checkApplicationID(from, "--from")
      try checkApplicationID(to, "--to")
      if receiverCredential.isGiven {
        throw ValidationError("The receiver opens its container itself: no credential for it goes with --to.")
      }
    }
    if checkInterval < 0 { throw ValidationError("--check-interval takes 0 or more.") }
    if let requestID, !(1...255).contains(requestID.utf8.count) {
      throw ValidationError("--request-id takes 1 to 255 bytes.")
    }
  }

  func run() throws {
    if let to {
      try sendThroughOutbox(to: ApplicationID(to))
    } else {
      try sendDirectly(to: items[0], Array(items.dropFirst()))
    }
  }

  private func sendDirectly(to receiver: String, _ path: [String]) throws {
    let secret = try credential.secret(for: sender)
    let receiverSecret = try receiverCredential.secret(for: receiver)
    let options = try bulk.containerOptions()
    var receiverOptions = options
    if hasNoBarrier { receiverOptions.durability = .none }
    var sendOptions = SendOptions()
    sendOptions.checkInterval = checkInterval
    sendOptions.requestID = requestID
    let delivery = try withContainer(
      at: sender, secret, mode: .readOnly, options: options,
      findings: bulk.findings(asJSON: json)
    ) { source in
      try withContainer(
        at: receiver, receiverSecret, mode: .readWrite, options: receiverOptions,
        findings: bulk.findings(asJSON: json)
      ) { target in
        let begin = ContinuousClock.now
        let receipt = try bulk.withProgress("send") { control in
          try source.send(path, to: target, sender: from, options: sendOptions, control: control)
        }
        return DeliveryDescription(receipt, seconds: begin.secondsSince)
      }
    }
    if json {
      try StandardOutput.write(JSONText.of(delivery))
    } else if !bulk.quiet {
      try StandardOutput.write(delivery.text)
    }
  }
}

private struct DeliveryDescription: Encodable {
  struct File: Encodable {
    var originalPath: String
    var path: String
    var size: UInt64
  }

  var requestID: String?
  var directory: String
  var files: [File]
  var byteCount: UInt64
  var seconds: Double
  var bytesPerSecond: Double
  var deliveredBefore: Bool

  init(_ receipt: Receipt, seconds: Double) {
    requestID = receipt.requestID
    directory = receipt.directory
    files = receipt.files.map { File(originalPath: $0.originalPath, path: $0.path, size: $0.size) }
    byteCount = receipt.byteCount
    self.seconds = seconds
    deliveredBefore = receipt.wasDeliveredBefore
    bytesPerSecond = seconds > 0 && !deliveredBefore ? Double(byteCount) / seconds : 0
  }

  var text: String {
    let place = PrintableText.of(directory)
    let request = requestID.map { "request \(PrintableText.of($0))" }
    if deliveredBefore, let request {
      return "\(request) was delivered before, to \(place); nothing was sent\n"
    }
    let lines = files.map {
      "\(PrintableText.of($0.originalPath)) -> \(PrintableText.of($0.path))  \(Quantity.bytes($0.size))\n"
    }
    return lines.joined()
      + "\(Quantity.count(files.count, "file")), \(Quantity.bytes(byteCount)) in "
      + "\(Quantity.decimal(seconds, digits: 3)) s (\(Quantity.rate(bytesPerSecond)))\(request.map { ", \($0)" } ?? "")\n"
  }
}
