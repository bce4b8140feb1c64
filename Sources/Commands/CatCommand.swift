import ArgumentParser
import ContainerStore

struct CatCommand: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "cat", abstract: "Writes files to standard output.",
    usage: "dynamics cat [OPTIONS] DIR PATH…\ndynamics cat [OPTIONS] CONTAINER:/path…")

  @Argument(help: "The container, or CONTAINER:/path.", completion: .directory)
  var dir: String

  @Argument(help: "The files.")
  var path: [String] = []

  @OptionGroup var credential: CredentialOptions

  func validate() throws { _ = try operands() }

  private func operands() throws -> ContainerOperands { try ContainerOperands(requiringPath: dir, path) }

  func run() throws {
    Interruption.shared.endAtOnce()
    let operands = try operands()
    let secret = try credential.secret(for: operands.directory)
    try withContainer(at: operands.directory, secret, mode: .readOnly) { container in
      for path in operands.paths { try container.read(path) { try StandardOutput.write($0) } }
    }
  }
}
