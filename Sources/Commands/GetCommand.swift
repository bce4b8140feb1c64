import ArgumentParser
import CPosix
import ContainerStore

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

struct GetCommand: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "get", abstract: "Copies a file or folder out of a container.",
    discussion: """
      An existing folder LOCAL takes PATH inside under its own name; otherwise LOCAL becomes the name. Existing files are \
      replaced when the new ones are whole. LOCAL - is standard output.
      """)

  @Argument(help: "The container.", completion: .directory)
  var dir: String

  @Argument(help: "The file or folder in the container.")
  var path: String

  @Argument(help: "Where the copy goes, or - for standard output.", completion: .file())
  var local: String

  @OptionGroup var credential: CredentialOptions
  @OptionGroup var bulk: BulkOptions

  func run() throws {
    let kind = local == "-" ? .stream : try NativeKind(at: local)
    if kind == .missing, try NativeKind(at: PathText.parent(local)) != .directory {
      throw CommandError(
        .nativeMissing, path: PathText.parent(local), detail: "the folder that is to hold it")
    }
    let secret = try credential.secret(for: dir)
    let options = try bulk.containerOptions()
    try withContainer(at: dir, secret, mode: .readOnly, options: options) { container in
      let source = try container.existing(path)
      if kind == .stream {
        guard source.kind == .file else { throw ContainerError(.isADirectory, path: path) }
        return try writeStream(of: source, in: container)
      }
      let destination = try place(of: source, local: kind)
      try bulk.withProgress("get") { control in
        try container.exportItem(path, to: destination, control: control)
      }
    }
  }

  /// LOCAL, or the place inside when it is a folder.
  private func place(of source: FileAttributes, local kind: NativeKind) throws -> String {
    let isFile = source.kind == .file
    if kind == .directory {
      guard let name = PathText.baseName(path) else { return PathText.trimmed(local) }
      return PathText.joined(local, name)
    }
    if isFile, PathText.endsWithSlash(local) {
      throw CommandError(.nativeMissing, path: local, detail: "a folder of that name")
    }
    if !isFile, kind == .file { throw ContainerError(.fileExists, path: local) }
    return PathText.trimmed(local)
  }

  /// To standard output, or into a pipe or device: such a file is written to, not replaced.
  private func writeStream(of source: FileAttributes, in container: Container) throws {
    // A write may wait for ever, and there is nothing to undo.
    Interruption.shared.endAtOnce()
    let descriptor = local == "-" ? STDOUT_FILENO : cposix_open(local, O_WRONLY, 0)
    guard descriptor >= 0 else { throw CommandError.native("open", local, -descriptor) }
    defer { if local != "-" { close(descriptor) } }
    let begin = ContinuousClock.now
    var done: UInt64 = 0
    try bulk.withProgressBar("get") { bar in
      try container.read(path) { bytes in
        try writeFully(descriptor, bytes, name: local == "-" ? "standard output" : local)
        done += UInt64(bytes.count)
        bar?.show(ProgressState(bytesDone: done, byteCount: source.size, seconds: begin.secondsSince))
      }
    }
  }
}
