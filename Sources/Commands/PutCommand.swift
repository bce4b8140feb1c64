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

struct PutCommand: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "put", abstract: "Copies a file or folder into a container.",
    discussion: """
      An existing folder PATH, or one that ends in a slash, takes LOCAL inside under its own name; otherwise PATH becomes the \
      name. Missing folders on the way are made; existing files are replaced. LOCAL - is standard input.
      """)

  @Argument(help: "The container.", completion: .directory)
  var dir: String

  @Argument(help: "The file or folder to copy, or - for standard input.", completion: .file())
  var local: String

  @Argument(help: "Its place in the container.")
  var path: String

  @OptionGroup var credential: CredentialOptions
  @OptionGroup var bulk: BulkOptions

  func run() throws {
    let kind = local == "-" ? .stream : try NativeKind(at: local)
    if kind == .missing { throw CommandError(.nativeMissing, path: local) }
    let secret = try credential.secret(for: dir)
    let options = try bulk.containerOptions()
    try withContainer(at: dir, secret, mode: .readWrite, options: options) { container in
      switch kind {
      case .stream: try putStream(to: container)
      case .file, .directory, .missing:
        let place = try container.place(of: local, at: path)
        try bulk.withProgress("put") { control in
          try container.importItem(at: local, to: place, control: control)
        }
      }
    }
  }

  private func putStream(to container: Container) throws {
    let place = local == "-" ? path : try container.place(of: local, at: path)
    if try PathText.endsWithSlash(place) || container.attributes(at: place)?.kind == .directory {
      throw ContainerError(.isADirectory, path: place, detail: "a stream needs the name of a file")
    }
    // Never blocking: a pipe that nobody opens for writing can then be waited for and given up.
    let descriptor = local == "-" ? STDIN_FILENO : cposix_open(local, O_RDONLY | O_NONBLOCK, 0)
    guard descriptor >= 0 else { throw CommandError.native("open", local, -descriptor) }
    defer { if local != "-" { close(descriptor) } }
    let missing = try container.missingParents(of: place)
    do {
      for directory in missing { try container.createDirectory(directory) }
      try bulk.withProgressBar("put") { bar in
        let stream = StreamInput(descriptor: descriptor, name: local, bar: bar)
        try container.write(to: place, next: stream.next)
      }
    } catch {
      // What was made for a file that did not come; fails, rightly, where somebody else put something.
      for directory in missing.reversed() { try? container.remove(directory, recursively: false) }
      throw error
    }
  }
}

/// A stream in pieces of at most 1 MiB, with progress and cancellation.
private final class StreamInput {
  private static let pieceByteCount = 1 << 20

  private let descriptor: Int32
  private let name: String
  private let bar: ProgressBar?
  private let begin = ContinuousClock.now
  private var byteCount: UInt64 = 0

  init(descriptor: Int32, name: String, bar: ProgressBar?) {
    self.descriptor = descriptor
    self.name = name
    self.bar = bar
  }

  func next() throws -> [UInt8]? {
    let piece = try [UInt8](unsafeUninitializedCapacity: Self.pieceByteCount) { buffer, initialized in
      let memory = UnsafeMutableRawBufferPointer(buffer)
      while initialized < memory.count {
        let rest = UnsafeMutableRawBufferPointer(rebasing: memory[initialized...])
        let count = try readSome(descriptor, into: rest, name: name)
        if count == 0 { break }
        initialized += count
      }
    }
    byteCount += UInt64(piece.count)
    bar?.show(ProgressState(bytesDone: byteCount, byteCount: nil, seconds: begin.secondsSince))
    return piece.isEmpty ? nil : piece
  }
}
