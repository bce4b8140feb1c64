import ArgumentParser
import ContainerStore

struct LinkCommand: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "ln", abstract: "Gives a file another name, or with -s makes a symbolic link.",
    discussion: """
      An existing folder PATH takes the link inside under TARGET's name. An absolute TARGET begins at the container's root; of a \
      symbolic link, a relative one begins at the folder of the link.
      """)

  @Argument(help: "The container.", completion: .directory)
  var dir: String

  @Argument(help: "The file; with -s, where the link is to lead.")
  var target: String

  @Argument(help: "The new name, or the folder that takes it.")
  var path: String

  @OptionGroup var credential: CredentialOptions

  @Flag(name: [.customShort("s"), .customLong("symbolic")], help: "Makes a symbolic link.")
  var symbolic = false

  @Flag(name: .shortAndLong, help: "Replaces a file or link that is there.")
  var force = false

  func run() throws {
    let secret = try credential.secret(for: dir)
    try withContainer(at: dir, secret, mode: .readWrite) { container in
      let place = try container.place(of: target, at: path)
      guard force else { return try make(place, in: container) }
      // Its own name, or another of the same file.
      if !symbolic, try container.attributes(at: place)?.id == container.existing(target).id { return }
      try container.putLink(place) { try make($0, in: container) }
    }
  }

  private func make(_ place: String, in container: Container) throws {
    if symbolic {
      try container.createSymbolicLink(place, to: target)
    } else {
      try container.createLink(place, to: target)
    }
  }
}

extension Container {
  /// Makes a link with `make`, or puts it in the place of a file or link, in one commit.
  func putLink(_ place: String, _ make: (String) throws -> Void) throws {
    guard let old = try attributes(at: place) else { return try make(place) }
    if old.kind == .directory { throw ContainerError(.isADirectory, path: place) }
    // Beside it first, because nothing is to be lost when it cannot be made.
    let beside = PathText.joined(PathText.parent(place), try freeName(beside: place))
    try make(beside)
    do {
      try move(beside, to: place, replacing: true)
    } catch {
      try? remove(beside)
      throw error
    }
  }

  /// A name that nothing has in the directory of `path`.
  private func freeName(beside path: String) throws -> String {
    var number = 0
    while true {
      let name = ".opendynamics-\(number).part"
      if try attributes(at: PathText.joined(PathText.parent(path), name)) == nil { return name }
      number += 1
    }
  }
}
