import ArgumentParser
import ContainerStore

struct CopyCommand: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "cp", abstract: "Copies a file or folder inside a container.",
    discussion: "An existing folder TO takes FROM inside; an existing file TO is replaced by a file.")

  @Argument(help: "The container.", completion: .directory)
  var dir: String

  @Argument(help: "The file or folder.")
  var from: String

  @Argument(help: "The copy's name, or the folder that takes it.")
  var to: String

  @OptionGroup var credential: CredentialOptions
  @OptionGroup var bulk: BulkOptions

  @Flag(name: [.short, .customShort("R"), .long], help: "Folders are copied with everything in them anyway.")
  var recursive = false

  func run() throws {
    let secret = try credential.secret(for: dir)
    let options = try bulk.containerOptions()
    try withContainer(at: dir, secret, mode: .readWrite, options: options) { container in
      _ = try container.existing(from)
      let isDirectory = try container.attributes(at: to)?.kind == .directory
      let place = isDirectory ? try container.place(of: from, at: to) : to
      try bulk.withProgress("cp") { control in
        try container.copy(from, to: place, replacing: true, control: control)
      }
    }
  }
}
