import CPosix

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

/// The arguments behind the program's name, from the C library. Swift's own come from /proc on Linux, and are none where that is
/// missing: a command would then do nothing, and succeed.
enum ProgramArguments {
  private static var all: [UnsafeRawBufferPointer] {
    var vector: UnsafePointer<UnsafeMutablePointer<CChar>?>?
    let count = cposix_arguments(&vector)
    guard count >= 0, let vector else {
      return (0..<Int(CommandLine.argc)).compactMap { CommandLine.unsafeArgv[$0] }.map(bytes)
    }
    return (0..<Int(count)).compactMap { vector[$0] }.map(bytes)
  }

  private static func bytes(_ argument: UnsafeMutablePointer<CChar>) -> UnsafeRawBufferPointer {
    UnsafeRawBufferPointer(start: argument, count: strlen(argument))
  }

  static let words = all.dropFirst().map { String(decoding: $0, as: UTF8.self) }

  /// Swift repairs arguments that are not UTF-8, and would then look for a file of another name.
  static func check() throws {
    // The name of the program is no argument, and may be in a directory of any name.
    for bytes in all.dropFirst() where String(validating: bytes, as: UTF8.self) == nil {
      throw CommandError(.argumentNotUTF8, path: String(decoding: bytes, as: UTF8.self))
    }
  }
}

/// Standard input and outputs that the caller has closed. A file or pipe of the program must not take their place.
enum StandardDescriptors {
  /// Opens what reads, or writes, nothing: an error for who uses it, and no file of ours.
  static func complete() {
    for descriptor in [STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO] where fcntl(descriptor, F_GETFD) < 0 {
      let access = descriptor == STDIN_FILENO ? O_WRONLY : O_RDONLY
      // The lowest free number, which is this one. A directory gives and takes nothing either, where there is no /dev.
      if open("/dev/null", access) < 0 { _ = open("/", O_RDONLY | O_DIRECTORY) }
    }
  }
}
