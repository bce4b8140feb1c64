import ArgumentParser
import ContainerStore

struct MakeDirectoryCommand: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "mkdir", abstract: "Makes folders.",
    usage: "dynamics mkdir [OPTIONS] DIR PATH…\ndynamics mkdir [OPTIONS] CONTAINER:/path…")

  @Argument(help: "The container, or CONTAINER:/path.", completion: .directory)
  var dir: String

  @Argument(help: "The folders.")
  var path: [String] = []

  @OptionGroup var credential: CredentialOptions

  @Flag(
    name: [.customShort("p"), .customLong("parents")],
    help: "Makes missing folders on the way; existing ones are fine.")
  var parents = false

  func validate() throws { _ = try operands() }

  private func operands() throws -> ContainerOperands { try ContainerOperands(requiringPath: dir, path) }

  func run() throws {
    let operands = try operands()
    let secret = try credential.secret(for: operands.directory)
    try withContainer(at: operands.directory, secret, mode: .readWrite) { container in
      for path in operands.paths { try container.createDirectory(path, withIntermediateDirectories: parents) }
    }
  }
}
