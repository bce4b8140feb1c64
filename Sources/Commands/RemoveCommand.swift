import ArgumentParser
import ContainerStore

struct RemoveCommand: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "rm", abstract: "Removes files, and with -r folders.",
    discussion: "Ends at the first path that cannot be removed; those before it are gone.")

  @Argument(help: "The container.", completion: .directory)
  var dir: String

  @Argument(help: "The files.")
  var path: [String]

  @OptionGroup var credential: CredentialOptions

  @Flag(name: [.short, .customShort("R"), .long], help: "Removes folders with everything in them.")
  var recursive = false

  @Flag(name: .shortAndLong, help: "Takes no offence at what is missing.")
  var force = false

  func run() throws {
    let secret = try credential.secret(for: dir)
    try withContainer(at: dir, secret, mode: .readWrite) { container in
      for path in path {
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
