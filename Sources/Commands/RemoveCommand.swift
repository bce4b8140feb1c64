import ArgumentParser
import ContainerStore

struct RemoveCommand: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "rm", abstract: "Removes files, and with -r folders.",
    usage: "dynamics rm [OPTIONS] DIR PATH…\ndynamics rm [OPTIONS] CONTAINER:/path…",
    discussion: "Ends at the first path that cannot be removed; those before it are gone.")

  @Argument(help: "The container, or CONTAINER:/path.", completion: .directory)
  var dir: String

  @Argument(help: "The files.")
  var path: [String] = []

  @OptionGroup var credential: CredentialOptions

  @Flag(name: [.short, .customShort("R"), .long], help: "Removes folders with everything in them.")
  var recursive = false

  @Flag(name: .shortAndLong, help: "Takes no offence at what is missing.")
  var force = false

  func validate() throws { _ = try operands() }

  private func operands() throws -> ContainerOperands { try ContainerOperands(requiringPath: dir, path) }

  func run() throws {
    let operands = try operands()
    let secret = try credential.secret(for: operands.directory)
    try withContainer(at: operands.directory, secret, mode: .readWrite) { container in
      for path in operands.paths {
        guard let attributes = try container.attributes(at: path) else {
          if force { continue }
          throw ContainerError(.noSuchFile, path: path)
        }
        // An empty folder, too: like rm(1).
        if attributes.kind == .directory, !recursive {
          throw ContainerError(.isADirectory, path: path, detail: "rm -r removes it with everything in it")
        }
        try container.remove(path, recursively: recursive)
      }
    }
  }
}
