import ArgumentParser

struct OutboxCommand: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "outbox",
    abstract: "Shows messages with files that their receivers do not have yet, and goes on with them.",
    subcommands: [OutboxListCommand.self, OutboxResumeCommand.self, OutboxCancelCommand.self])
}
