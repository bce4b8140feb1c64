import ArgumentParser

struct AppCommand: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "app", abstract: "A ready-made app around a container.",
    subcommands: [AppRunCommand.self, AppPresentCommand.self])
}
