import ArgumentParser
import ContainerStore
import SodiumPrimitives

struct AppendCommand: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "append", abstract: "Appends a file or stream to a file in a container.",
    usage: "dynamics append [OPTIONS] DIR PATH [LOCAL]\ndynamics append [OPTIONS] CONTAINER:/path [LOCAL]",
    discussion: """
      Makes the file when it is missing, but no folders. What arrived before a failure or a signal stays. LOCAL -, or none, is \
      standard input.
      """)

  @Argument(help: "The container, or CONTAINER:/path.", completion: .directory)
  var dir: String

  @Argument(help: "The file in the container, and what to append.", completion: .file())
  var operands: [String] = []

  @OptionGroup var credential: CredentialOptions
  @OptionGroup var bulk: BulkOptions

  func validate() throws { _ = try places() }

  private func places() throws -> (container: ContainerOperands, local: String) {
    var rest = operands[...]
    let isAddress = ContainerAddress(dir) != nil && !ContainerAddress.isContainer(at: dir)
    let place = try ContainerOperands(requiringPath: dir, isAddress ? [] : rest.popFirst().map { [$0] } ?? [])
    let local = rest.popFirst() ?? "-"
    guard rest.isEmpty else { throw ValidationError("Give one LOCAL at most.") }
    return (place, local)
  }

  func run() throws {
    let (place, local) = try places()
    if local != "-" {
      switch try NativeKind(at: local) {
      case .missing: throw CommandError(.nativeMissing, path: local)
      case .directory: throw ContainerError(.isADirectory, nativePath: local)
      case .file, .stream: break
      }
    }
    let secret = try credential.secret(for: place.directory)
    let options = try bulk.containerOptions()
    try withContainer(
      at: place.directory, secret, mode: .readWrite, options: options, findings: bulk.findings
    ) { container in
      try withNativeInput(local) { descriptor in
        let file = try container.openFile(place.path, .write, create: true)
        do {
          try append(descriptor, local, to: file)
        } catch {
          // What arrived stays; the first error is the one to report.
          try? file.close()
          throw error
        }
        try file.close()
      }
    }
  }

  /// Each piece as it comes, so that what a slow stream delivers is not held back.
  private func append(_ descriptor: Int32, _ name: String, to file: OpenFile) throws {
    let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: 1 << 20, alignment: 4096)
    defer {
      wipe(buffer)
      buffer.deallocate()
    }
    let begin = ContinuousClock.now
    var done: UInt64 = 0
    try bulk.withProgressBar("append") { bar in
      while true {
        let count = try readSome(descriptor, into: buffer, name: name)
        if count == 0 { return }
        try file.append(UnsafeRawBufferPointer(rebasing: buffer[0..<count]))
        done += UInt64(count)
        bar?.show(ProgressState(bytesDone: done, byteCount: nil, seconds: begin.secondsSince))
      }
    }
  }
}
