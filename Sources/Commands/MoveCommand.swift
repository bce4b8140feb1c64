import ArgumentParser
import ContainerStore

struct MoveCommand: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "mv", abstract: "Moves or renames files and folders inside a container.",
    usage: "dynamics mv DIR FROM TO\ndynamics mv CONTAINER:/from… CONTAINER:/to",
    discussion: """
      An existing folder TO takes FROM inside; an existing file TO is replaced by a file. Several FROM need a folder TO. From one \
      container to another, and to native files, copy with cp and then remove with rm.
      """)

  @Argument(help: "What to move, and where to.", completion: .directory)
  var operands: [String]

  @OptionGroup var credential: CredentialOptions

  func validate() throws { _ = try MoveForm(operands) }

  func run() throws {
    let form = try MoveForm(operands)
    let secret = try credential.secret(for: form.directory)
    try withContainer(at: form.directory, secret, mode: .readWrite) { container in
      if form.sources.count > 1, try container.existing(form.target, followingLinks: true).kind != .directory
      {
        throw ContainerError(.notADirectory, path: form.target, detail: "several files need a folder")
      }
      for source in form.sources {
        _ = try container.existing(source)
        let place =
          try container.isDirectory(form.target)
          ? try container.place(of: source, at: form.target) : form.target
        try container.move(source, to: place, replacing: true)
      }
    }
  }
}
