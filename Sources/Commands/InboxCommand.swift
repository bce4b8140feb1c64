import AppKinetics
import ArgumentParser
import ContainerStore

struct InboxCommand: ParsableCommand, ReportingCommand {
  static let configuration = CommandConfiguration(
    commandName: "inbox", abstract: "Lists the messages in the inbox of an app's container, or removes some.",
    usage: "dynamics inbox DIR [list] [FILTERS]\ndynamics inbox DIR remove FILTERS",
    discussion: """
      A line for each message, the oldest first: when it arrived, how many files and bytes it has, and its directory; of a \
      reply that the app did not take when it came, the request that it answers. All filters must hold. N is exactly so many, +N more, -N fewer. Removing prints what went, in one step.
      """)

  enum Action: String, CaseIterable, ExpressibleByArgument {
    case list, remove
  }

  @Argument(help: "The container.", completion: .directory)
  var dir: String

  @Argument(help: "What to do.")
  var action = Action.list

  @OptionGroup var credential: CredentialOptions

  @Option(help: ArgumentHelp("Messages of this sender.", valueName: "app-id"))
  var from: String?

  @Option(
    parsing: .unconditional,
    help: ArgumentHelp("Arrived so many whole days ago.", valueName: "[+-]N"))
  var days: AgeTest?

  @Option(
    parsing: .unconditional,
    help: ArgumentHelp("Arrived so many whole minutes ago.", valueName: "[+-]N"))
  var minutes: AgeTest?

  @Option(
    parsing: .unconditional,
    help: ArgumentHelp(
      "The size of all files, rounded up to blocks of 512 bytes, bytes (c), KiB, MiB or GiB.",
      valueName: "[+-]N[bckMG]"))
  var size: SizeTest?

  @Flag(help: "All messages, instead of filters.")
  var all = false

  @Flag(help: "Prints sizes as 1.5KiB.")
  var human = false

  @Flag(help: "Prints one JSON array.")
  var json = false

  var reportsJSON: Bool { json }

  private var hasFilter: Bool { from != nil || days != nil || minutes != nil || size != nil }

  func validate() throws {
    if json, human { throw ValidationError("--json has bytes; leave out --human.") }
    if all, hasFilter { throw ValidationError("Give --all or filters, not both.") }
    if action == .remove, !all, !hasFilter {
      throw ValidationError("Say which messages to remove: --from, --days, --minutes, --size, or --all.")
    }
  }

  func run() throws {
    let removes = action == .remove
    if !removes { Interruption.shared.endAtOnce() }
    let secret = try credential.secret(for: dir)
    var damage: ContainerError?
    let found = try withContainer(
      at: dir, secret, mode: removes ? .readWrite : .readOnly, findings: json ? .json : .text
    ) { container in
      let replies = try UnclaimedReply.all(in: container, skipping: { damage = damage ?? $0 })
      let found = try InboxMessage.all(container.arrivedMessages(), replies)
        .filter(passes(now: FindCommand.now()))
      if removes, !found.isEmpty {
        try container.removeArrivedMessages(
          found.compactMap(\.directory), endingQueued: found.compactMap { $0.reply?.arrival })
      }
      return found
    }
    try StandardOutput.write(json ? JSONText.of(found.map(MessageDescription.init)) : text(found))
    if let damage { throw damage }
  }

  private func passes(now: Int64) -> (InboxMessage) -> Bool {
    { message in
      (from.map { Array($0.utf8) == Array(message.sender.utf8) } ?? true)
        && days?.holds(for: message.date, now: now, unitSeconds: 86_400) ?? true
        && minutes?.holds(for: message.date, now: now, unitSeconds: 60) ?? true
        && size?.holds(for: message.byteCount) ?? true
    }
  }

  private func text(_ messages: [InboxMessage]) -> String {
    let counts = Column(messages.map { String($0.fileCount) })
    let sizes = Column(messages.map { human ? Quantity.compactBytes($0.byteCount) : String($0.byteCount) })
    return messages.enumerated().map { row, message in
      let reply = message.reply.map { "reply of \(PrintableText.of(message.sender)) to \($0.request)" }
      let parts = [
        Quantity.timestamp(message.date, withFraction: false), counts[row], sizes[row],
        message.directory.map(PrintableText.of), reply,
      ]
      return parts.compactMap(\.self).joined(separator: "  ") + "\n"
    }.joined()
  }
}

/// A message that left a directory in the inbox, or a reply that nobody has taken, or both.
private struct InboxMessage {
  /// Nil for a reply without files.
  var directory: String?
  var sender: String
  /// In nanoseconds since 1970.
  var date: Int64
  var fileCount = 0
  var byteCount: UInt64 = 0
  var reply: UnclaimedReply?

  /// Oldest first.
  static func all(_ messages: [ArrivedMessage], _ replies: [UnclaimedReply]) -> [InboxMessage] {
    var repliesInDirectories: [String: UnclaimedReply] = [:]
    for reply in replies { if let directory = reply.directory { repliesInDirectories[directory] = reply } }
    var all = messages.map { message in
      InboxMessage(
        directory: message.directory, sender: message.sender, date: message.date,
        fileCount: message.fileCount, byteCount: message.byteCount,
        reply: repliesInDirectories.removeValue(forKey: message.directory))
    }
    // Of those with files, the app has removed the directories.
    let others = replies.filter { $0.directory.map { repliesInDirectories[$0] != nil } ?? true }
    all += others.map { reply in
      InboxMessage(
        sender: reply.sender.text, date: Int64(reply.date.timeIntervalSince1970 * 1000) * 1_000_000,
        reply: reply)
    }
    return all.enumerated().sorted { ($0.element.date, $0.offset) < ($1.element.date, $1.offset) }.map(
      \.element)
  }
}

private struct MessageDescription: Encodable {
  struct Reply: Encodable {
    var requestID: String
    /// JSON.
    var params: String?
    var error: String?
  }

  var directory: String?
  var sender: String
  var date: String
  var fileCount: Int
  var size: UInt64
  var reply: Reply?

  init(_ message: InboxMessage) {
    directory = message.directory
    sender = message.sender
    date = Quantity.timestamp(message.date)
    fileCount = message.fileCount
    size = message.byteCount
    reply = message.reply.map { reply in
      let params = Result { try reply.result.get().params?.jsonText() }
      return switch params {
      case .success(let text): Reply(requestID: reply.request.description, params: text)
      case .failure(let error): Reply(requestID: reply.request.description, error: "\(error)")
      }
    }
  }
}
