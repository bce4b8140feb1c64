import ArgumentParser
import ContainerStore

struct PutCommand: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "put", abstract: "Copies a file or folder into a container.",
    discussion: """
      An existing folder PATH, or one that ends in a slash, takes LOCAL inside under its own name; otherwise PATH becomes the \
      name. Missing folders on the way are made; existing files are replaced. LOCAL - is standard input.
      """)

  @Argument(help: "The container.", completion: .directory)
  var dir: String

  @Argument(help: "The file or folder to copy, or - for standard input.", completion: .file())
  var local: String

  @Argument(help: "Its place in the container.")
  var path: String

  @OptionGroup var credential: CredentialOptions
  @OptionGroup var bulk: BulkOptions

  func run() throws {
    let kind = local == "-" ? .stream : try NativeKind(at: local)
    if kind == .missing { throw CommandError(.nativeMissing, path: local) }
    let secret = try credential.secret(for: dir)
    let options = try bulk.containerOptions()
    try withContainer(at: dir, secret, mode: .readWrite, options: options) { container in
      switch kind {
      case .stream:
        let place = local == "-" ? path : try container.place(of: local, at: path)
        try container.importStream(local, to: place, title: "put", bulk: bulk)
      case .file, .directory, .missing:
        let place = try container.place(of: local, at: path)
        try bulk.withProgress("put") { control in
          try container.importItem(at: local, to: place, control: control)
        }
      }
    }
  }
}
