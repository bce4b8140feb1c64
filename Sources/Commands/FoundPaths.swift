import ArgumentParser
import ContainerStore

/// What a command found at each of its paths. As coreutils do, it goes on where one is missing: that one is reported at once, and the exit
/// code tells of it in the end (Documentation/CLI.md).
struct FoundPaths<Found> {
  private(set) var found: [Found] = []
  private var isComplete = true

  /// `look` throws `noSuchFile` of a path that is missing. What else it throws ends everything.
  init(_ paths: [String], asJSON: Bool, look: (String) throws -> Found) throws {
    for path in paths {
      do {
        found.append(try look(path))
      } catch let error as ContainerError where error.code == .noSuchFile {
        isComplete = false
        ErrorReport(error)?.write(asJSON: asJSON)
      }
    }
  }

  /// Prints what was found, and nothing when that is nothing. Throws the exit code when a path was missing.
  func print(_ text: ([Found]) throws -> String) throws {
    if !found.isEmpty { try StandardOutput.write(text(found)) }
    if !isComplete { throw ExitCode(ExitStatus.notFound.code) }
  }
}
