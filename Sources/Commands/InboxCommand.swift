import ArgumentParser
import ContainerStore

struct InboxCommand: ParsableCommand, ReportingCommand {
  static let configuration = CommandConfiguration(
    commandName: "inbox", abstract: "Lists the messages in the inbox of an app's container, or removes some.",
    usage: "dynamics inbox DIR [list] [FILTERS]\ndynamics inbox DIR remove FILTERS",
    discussion: """
      A line for each message, the oldest first: when it arrived, how many files and bytes it has, and its directory. All \
      filters must hold. N is exactly so many, +N more, -N fewer. Removing prints what went, in one step.
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
    let found = try withContainer(
      at: dir, secret, mode: removes ? .readWrite : .readOnly, findings: json ? .json : .text
    ) { container in
      let found = try container.arrivedMessages().filter(passes(now: FindCommand.now()))
      if removes, !found.isEmpty { try container.removeArrivedMessages(found.map(\.directory)) }
      return found
    }
    try StandardOutput.write(json ? JSONText.of(found.map(MessageDescription.init)) : text(found))
  }

  private func passes(now: Int64) -> (ArrivedMessage) -> Bool {
    { message in
      (from.map { Array($0.utf8) == Array(message.sender.utf8) } ?? true)
        && days?.holds(for: message.date, now: now, unitSeconds: 86_400) ?? true
        && minutes?.holds(for: message.date, now: now, unitSeconds: 60) ?? true
        && size?.holds(for: message.byteCount) ?? true
    }
  }

  private func text(_ messages: [ArrivedMessage]) -> String {
    let counts = Column(messages.map { String($0.fileCount) })
    let sizes = Column(messages.map { human ? Quantity.compactBytes($0.byteCount) : String($0.byteCount) })
    return messages.enumerated().map { row, message in
      Quantity.timestamp(message.date, withFraction: false) + "  " + counts[row] + "  " + sizes[row] + "  "
        + PrintableText.of(message.directory) + "\n"
    }.joined()
  }
}

private struct MessageDescription: Encodable {
  var directory: String
  var sender: String
  var date: String
  var fileCount: Int
  var size: UInt64

  init(_ message: ArrivedMessage) {
    directory = message.directory
    sender = message.sender
    date = Quantity.timestamp(message.date)
    fileCount = message.fileCount
    size = message.byteCount
  }
}
