import ArgumentParser
import ContainerStore

struct GetCommand: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "get", abstract: "Copies a file or folder out of a container.",
    discussion: """
      An existing folder LOCAL takes PATH inside under its own name; otherwise LOCAL becomes the name. Existing files are \
      replaced when the new ones are whole. LOCAL - is standard output.
      """)

  @Argument(help: "The container.", completion: .directory)
  var dir: String

  @Argument(help: "The file or folder in the container.")
  var path: String

  @Argument(help: "Where the copy goes, or - for standard output.", completion: .file())
  var local: String

  @OptionGroup var credential: CredentialOptions
  @OptionGroup var bulk: BulkOptions

  func run() throws {
    let destination = try NativeDestination(local)
    let secret = try credential.secret(for: dir)
    let options = try bulk.containerOptions()
    try withContainer(at: dir, secret, mode: .readOnly, options: options) { container in
      let source = try container.existing(path, followingLinks: true)
      if destination.kind == .stream {
        return try container.exportStream(path, to: local, title: "get", bulk: bulk)
      }
      let place = try destination.place(of: path, source)
      try TreeCopier(title: "get", bulk: bulk).copy(.container(container, path), to: .native(place))
    }
  }
}
