import ArgumentParser

@main
struct DynamicsPush: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "dynamics-push",
    abstract: "Messages from an app's server to the app, through a relay.",
    discussion: """
      On one machine: `dynamics-push relay` in one terminal; `dynamics-push listen com.example.app` in another, \
      which prints a token; `dynamics-push send "$TOKEN" hello` in a third.
      """,
    subcommands: [
      RelayCommand.self, OpenCommand.self, ListenCommand.self, SendCommand.self, RevokeCommand.self,
    ])
}
