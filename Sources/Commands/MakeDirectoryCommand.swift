import ArgumentParser
import ContainerStore

struct MakeDirectoryCommand: ParsableCommand {
  static let configuration = CommandConfiguration(commandName: "mkdir", abstract: "Makes folders.")

  @Argument(help: "The container.", completion: .directory)
  var dir: String

  @Argument(help: "The folders.")
  var path: [String]

  @OptionGroup var credential: CredentialOptions

  @Flag(
    name: [.customShort("p"), .customLong("parents")],
    help: "Makes missing folders on the way; existing ones are fine.")
  var parents = false

  func run() throws {
    let secret = try credential.secret(for: dir)
    try withContainer(at: dir, secret, mode: .readWrite) { container in
      for path in path { try container.createDirectory(path, withIntermediateDirectories: parents) }
    }
  }
}
