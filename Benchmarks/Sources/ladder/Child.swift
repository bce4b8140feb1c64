import Foundation

/// A program that ended badly.
struct ChildFailure: Error, CustomStringConvertible {
  var command: String
  var status: Int32

  var description: String { "\(command) failed with wait status \(status)" }
}

/// Runs programs and learns from the kernel what they used.
enum Child {
  /// Runs a program found in the search path, and waits. Returns its peak resident memory in bytes (`ru_maxrss`, wait4).
  ///
  /// The kernel counts what the parent had when the child began as the child's, so this is an upper bound; a parent that
  /// wants a meaningful figure stays small.
  @discardableResult
  static func run(_ command: String, _ arguments: [String]) throws -> Int {
    var words: [UnsafeMutablePointer<CChar>?] = ([command] + arguments).map { strdup($0) } + [nil]
    defer { for word in words { free(word) } }
    var process = pid_t()
    let spawned = posix_spawnp(&process, command, nil, nil, &words, environ)
    guard spawned == 0 else { throw ChildFailure(command: command, status: spawned) }
    var status: Int32 = 0
    var usage = rusage()
    while wait4(process, &status, 0, &usage) < 0 {
      guard errno == EINTR else { throw ChildFailure(command: command, status: errno) }
    }
    guard status == 0 else { throw ChildFailure(command: command, status: status) }
    #if canImport(Darwin)
      return Int(usage.ru_maxrss)
    #else
      return Int(usage.ru_maxrss) * 1024
    #endif
  }

  /// This program itself.
  static var ownExecutable: String { Bundle.main.executablePath ?? CommandLine.arguments[0] }
}
