import ArgumentParser
import ContainerStore

struct MoveCommand: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "mv", abstract: "Moves or renames a file or folder inside a container.",
    discussion: "An existing folder TO takes FROM inside; an existing file TO is replaced by a file.")

  @Argument(help: "The container.", completion: .directory)
  var dir: String

  @Argument(help: "The file or folder.")
  var from: String

  @Argument(help: "Its new name, or the folder to move it into.")
  var to: String

  @OptionGroup var credential: CredentialOptions

  func run() throws {
    let secret = try credential.secret(for: dir)
    try withContainer(at: dir, secret, mode: .readWrite) { container in
      _ = try container.existing(from)
      let place = try container.isDirectory(to) ? try container.place(of: from, at: to) : to
      try container.move(from, to: place, replacing: true)
    }
  }
}
