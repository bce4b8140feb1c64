import ArgumentParser
import ContainerStore

struct PutCommand: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "put", abstract: "Copies a file or folder into a container.",
    usage: "dynamics put [OPTIONS] DIR LOCAL [PATH]\ndynamics put [OPTIONS] LOCAL CONTAINER:/path",
    discussion: """
      An existing folder PATH, or one that ends in a slash, takes LOCAL inside under its own name; otherwise PATH becomes the \
      name. Without PATH, LOCAL goes into the root. Missing folders on the way are made; existing files are replaced. LOCAL - is \
      standard input. A folder is stored in one step. What cannot be read or stored in it is left out and listed, and the exit code is 1.
      """)

  @Argument(help: "The container, what to copy, and its place.", completion: .file())
  var operands: [String]

  @OptionGroup var credential: CredentialOptions
  @OptionGroup var bulk: BulkOptions
  @OptionGroup var sources: SourceOptions

  func validate() throws { _ = try TransferOperands(put: operands) }

  func run() throws {
    let operands = try TransferOperands(put: operands)
    let (dir, local, path) = (operands.directory, operands.local, operands.path)
    let kind = local == "-" ? .stream : try NativeKind(at: local)
    if kind == .missing { throw CommandError(.nativeMissing, path: local) }
    let secret = try credential.secret(for: dir)
    let options = try bulk.containerOptions()
    let leftOut = sources.report()
    try withContainer(at: dir, secret, mode: .readWrite, options: options, findings: bulk.findings) {
      container in
      switch kind {
      case .stream:
        let place = local == "-" ? path : try container.place(of: local, at: path)
        try container.importStream(local, to: place, title: "put", bulk: bulk)
      case .file, .directory, .missing:
        let place = try container.place(of: local, at: path)
        try bulk.withProgress("put") { control in
          var control = control
          control.skipping = leftOut?.add
          try container.importItem(at: local, to: place, control: control)
        }
      }
    }
    try leftOut?.finish()
  }
}
