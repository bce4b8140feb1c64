import ArgumentParser
import ContainerStore

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

/// The program `dynamics` (Documentation/CLI.md).
public enum Program {
  /// Runs the command that the arguments name, and ends the process with one of the documented exit codes.
  public static func main() -> Never {
    var reportsJSON = false
    do {
      try checkArguments()
      var command = try DynamicsCommand.parseAsRoot()
      reportsJSON = (command as? any ReportingCommand)?.reportsJSON ?? false
      Interruption.shared.begin()
      if command is any AsyncParsableCommand {
        // A command is no value for another thread: that one parses its own.
        try AsyncWork.run {
          guard var command = try DynamicsCommand.parseAsRoot() as? any AsyncParsableCommand else { return }
          try await command.run()
        }
      } else {
        try command.run()
      }
      exit(ExitStatus.success.code)
    } catch {
      guard let report = ErrorReport(error) else { DynamicsCommand.exit(withError: error) }
      report.write(asJSON: reportsJSON)
      exit(report.status.code)
    }
  }

  /// Swift repairs arguments that are not UTF-8, and would then look for a file of another name.
  private static func checkArguments() throws {
    for i in 0..<Int(CommandLine.argc) {
      guard let argument = CommandLine.unsafeArgv[i] else { continue }
      let bytes = UnsafeRawBufferPointer(start: argument, count: strlen(argument))
      guard String(validating: bytes, as: UTF8.self) == nil else { continue }
      throw CommandError(.argumentNotUTF8, path: String(decoding: bytes, as: UTF8.self))
    }
  }
}

/// A command that takes `--json`, and then reports errors as JSON too.
protocol ReportingCommand {
  var reportsJSON: Bool { get }
}
