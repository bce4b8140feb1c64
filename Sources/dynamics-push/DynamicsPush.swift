import ArgumentParser
import Foundation
import Identifiers

@main
struct DynamicsPush: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: name,
    abstract: "Messages from an app's server to the app, through a relay.",
    discussion: """
      On one machine: `dynamics-push relay` in one terminal; `dynamics-push listen com.example.app` in another, \
      which prints a token; `dynamics-push send "$TOKEN" hello` in a third.
      """,
    version: programVersion,
    subcommands: [
      RelayCommand.self, OpenCommand.self, ListenCommand.self, SendCommand.self, RevokeCommand.self,
    ])

  static let name = "dynamics-push"

  /// Runs a command. An error that it throws shows the usage of that command, not of the program.
  static func main() async {
    do {
      var command = try parseAsRoot()
      do {
        if var command = command as? any AsyncParsableCommand {
          try await command.run()
        } else {
          try command.run()
        }
      } catch let error as ValidationError {
        let kind = type(of: command)
        writeError("Error: \(error.message)")
        writeError("Usage: " + usageString(for: kind))
        writeError("  See '\(name) \(kind._commandName) --help' for more information.")
        Self.exit(withError: ExitCode.validationFailure)
      }
    } catch {
      exit(withError: error)
    }
  }
}
