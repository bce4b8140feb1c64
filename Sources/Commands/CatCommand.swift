import ArgumentParser
import ContainerStore

struct CatCommand: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "cat", abstract: "Writes files to standard output.")

  @Argument(help: "The container.", completion: .directory)
  var dir: String

  @Argument(help: "The files.")
  var path: [String]

  @OptionGroup var credential: CredentialOptions

  func run() throws {
    Interruption.shared.endAtOnce()
    let secret = try credential.secret(for: dir)
    try withContainer(at: dir, secret, mode: .readOnly) { container in
      for path in path { try container.read(path) { try StandardOutput.write($0) } }
    }
  }
}
