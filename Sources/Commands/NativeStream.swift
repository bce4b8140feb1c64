import CPosix
import ContainerStore

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

/// Opens a native file, pipe or device for reading from end to end; `-` is standard input.
func withNativeInput<R>(_ local: String, _ body: (_ descriptor: Int32) throws -> R) throws -> R {
  // Never blocking: a pipe that nobody opens for writing can then be waited for and given up.
  let descriptor = local == "-" ? STDIN_FILENO : cposix_open(local, O_RDONLY | O_NONBLOCK, 0)
  guard descriptor >= 0 else { throw CommandError.native("open", local, -descriptor) }
  defer { if local != "-" { close(descriptor) } }
  return try body(descriptor)
}

/// Opens a pipe or device for writing; `-` is standard output.
private func withNativeOutput<R>(_ local: String, _ body: (_ descriptor: Int32) throws -> R) throws -> R {
  let descriptor = local == "-" ? STDOUT_FILENO : cposix_open(local, O_WRONLY, 0)
  guard descriptor >= 0 else { throw CommandError.native("open", local, -descriptor) }
  defer { if local != "-" { close(descriptor) } }
  return try body(descriptor)
}

extension Container {
  /// The contents of a stream as the file `place`; folders on the way are made.
  func importStream(_ local: String, to place: String, title: String, bulk: BulkOptions) throws {
    if try PathText.endsWithSlash(place) || isDirectory(place) {
      throw ContainerError(.isADirectory, path: place, detail: "a stream needs the name of a file")
    }
    try withNativeInput(local) { descriptor in
      let missing = try missingParents(of: place)
      do {
        for directory in missing { try createDirectory(directory) }
        try bulk.withProgressBar(title) { bar in
          let stream = StreamInput(descriptor: descriptor, name: local, bar: bar)
          try write(to: place, next: stream.next)
        }
      } catch {
        // What was made for a file that did not come; fails, rightly, where somebody else put something.
        for directory in missing.reversed() { try? remove(directory, recursively: false) }
        throw error
      }
    }
  }

  /// The contents of `path` to standard output (`-`), or into a pipe or device: such a file is written to, not replaced.
  func exportStream(_ path: String, to local: String, title: String, bulk: BulkOptions) throws {
    let source = try existing(path, followingLinks: true)
    guard source.kind == .file else { throw ContainerError(.isADirectory, path: path) }
    // A write may wait for ever, and there is nothing to undo.
    Interruption.shared.endAtOnce()
    let begin = ContinuousClock.now
    var done: UInt64 = 0
    try withNativeOutput(local) { descriptor in
      try bulk.withProgressBar(title) { bar in
        try read(path) { bytes in
          try writeFully(descriptor, bytes, name: local == "-" ? "standard output" : local)
          done += UInt64(bytes.count)
          bar?.show(ProgressState(bytesDone: done, byteCount: source.size, seconds: begin.secondsSince))
        }
      }
    }
  }
}
