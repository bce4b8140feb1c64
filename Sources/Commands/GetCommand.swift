import ArgumentParser
import ContainerStore

struct GetCommand: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "get", abstract: "Copies a file or folder out of a container.",
    usage: "dynamics get [OPTIONS] DIR PATH [LOCAL]\ndynamics get [OPTIONS] CONTAINER:/path [LOCAL]",
    discussion: """
      An existing folder LOCAL takes PATH inside under its own name; otherwise LOCAL becomes the name. Existing files are \
      replaced when the new ones are whole. LOCAL - is standard output. PATH / is everything. Without LOCAL, PATH goes into the \
      current folder. Of a folder, what is damaged is left out and listed, and the exit code is 2.
      """)

  @Argument(help: "The container, a path in it, and where the copy goes.", completion: .file())
  var operands: [String]

  @OptionGroup var credential: CredentialOptions
  @OptionGroup var bulk: BulkOptions
  @OptionGroup var damage: DamageOptions

  func validate() throws { _ = try TransferOperands(get: operands) }

  func run() throws {
    let operands = try TransferOperands(get: operands)
    let (dir, local, path) = (operands.directory, operands.local, operands.path)
    let damage = damage.report()
    let destination = try NativeDestination(local)
    let secret = try credential.secret(for: dir)
    let options = try bulk.containerOptions()
    try withContainer(at: dir, secret, mode: .readOnly, options: options, findings: bulk.findings) {
      container in
      let source = try container.existing(path, followingLinks: true)
      if destination.kind == .stream {
        return try container.exportStream(path, to: local, title: "get", bulk: bulk)
      }
      let place = try destination.place(of: path, source)
      try TreeCopier(title: "get", bulk: bulk, damage: damage).copy(
        .container(container, path), to: .native(place))
    }
    try damage?.finish()
  }
}
