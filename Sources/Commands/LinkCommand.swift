import ArgumentParser
import ContainerStore

struct LinkCommand: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "ln", abstract: "Gives a file another name, or with -s makes a symbolic link.",
    usage: "dynamics ln [OPTIONS] DIR TARGET [PATH]\ndynamics ln [OPTIONS] TARGET CONTAINER:/path",
    discussion: """
      An existing folder PATH takes the link inside under TARGET's name. An absolute TARGET begins at the container's root; of a \
      symbolic link, a relative one begins at the folder of the link.
      """)

  @Argument(
    help:
      "The container, the file (with -s, where the link is to lead), and the new name or the folder that takes it."
  )
  var operands: [String]

  @OptionGroup var credential: CredentialOptions

  @Flag(name: [.customShort("s"), .customLong("symbolic")], help: "Makes a symbolic link.")
  var symbolic = false

  @Flag(name: .shortAndLong, help: "Replaces a file or link that is there.")
  var force = false

  func validate() throws { _ = try LinkOperands(operands, symbolic: symbolic) }

  func run() throws {
    let operands = try LinkOperands(operands, symbolic: symbolic)
    let (dir, target, path) = (operands.directory, operands.target, operands.path)
    let secret = try credential.secret(for: dir)
    try withContainer(at: dir, secret, mode: .readWrite) { container in
      let place = try container.place(of: target, at: path)
      if symbolic {
        try container.createSymbolicLink(place, to: target, replacing: force)
      } else {
        try container.createLink(place, to: target, replacing: force)
      }
    }
  }
}
