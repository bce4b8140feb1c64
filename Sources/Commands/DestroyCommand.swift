import ArgumentParser
import ContainerStore
import Foundation

struct DestroyCommand: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "destroy", abstract: "Destroys a container, without its passphrase or key.",
    discussion: """
      Overwrites the key slots, so that nothing opens it again, and removes its files. It asks for the name of the directory first. Copies and \
      backups stay as they are, and so may old blocks on flash and on file systems that copy on write. When it is interrupted, the next \
      call goes on.
      """)

  @Argument(help: "The container.", completion: .directory)
  var dir: String

  @Flag(help: "Does not ask.")
  var yes = false

  func run() throws {
    let id = try Container.id(at: dir)
    if !yes { try confirm() }
    try Container.destroy(at: dir, id: id)
  }

  private func confirm() throws {
    let name = URL(fileURLWithPath: dir).standardizedFileURL.lastPathComponent
    guard
      let answer = try SecretInput.line(
        "Destroy the container \(PrintableText.of(dir)) for good? Its name: ")
    else {
      throw CommandError(.notConfirmed, path: dir, detail: "there is no terminal to ask; --yes does not ask")
    }
    guard answer == name else {
      throw CommandError(.notConfirmed, path: dir, detail: "its name is \(PrintableText.of(name))")
    }
  }
}
