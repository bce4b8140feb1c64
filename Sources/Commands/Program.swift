import ArgumentParser
import CPosix
import ContainerStore
import UnixSockets

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
    StandardDescriptors.complete()
    cposix_crash_silently()
    _ = cposix_set_dumpable(0)
    // What a neighbour's messages took does not stay in many arenas.
    cposix_limit_arenas()
    let words = ProgramArguments.words
    let arguments = CommandArguments(words)
    var reportsJSON = false
    do {
      try ProgramArguments.check()
      // As they are: a help option among them is not ours.
      if words.first == PushCommand.configuration.commandName {
        try PushCommand.handOver(Array(words.dropFirst()))
      }
      var command = try arguments.parse()
      reportsJSON = (command as? any ReportingCommand)?.reportsJSON ?? false
      Interruption.shared.begin()
      try requireDescriptors()
      if command is any AsyncParsableCommand {
        // A command is no value for another thread: that one parses its own.
        try AsyncWork.run {
          guard var command = try arguments.parse() as? any AsyncParsableCommand else { return }
          try await command.run()
        }
      } else {
        try command.run()
      }
      LogQueue.shared.flush()
      exit(ExitStatus.success.code)
    } catch {
      LogQueue.shared.flush()
      guard let report = ErrorReport(error) else {
        let code = DynamicsCommand.exitCode(for: error).rawValue
        guard code == ExitStatus.usage.code else { DynamicsCommand.exit(withError: error) }
        let message = DynamicsCommand.fullMessage(for: error)
        StandardError.write(message + "\n" + arguments.hint())
        exit(code)
      }
      report.write(asJSON: reportsJSON)
      exit(report.status.code)
    }
  }

  /// What every command finds enough: some opens of a container's files, and what the runtime opens for itself.
  private static let descriptorCountMin: UInt64 = 32

  /// Raises the soft limit of open files to the hard one. Throws `tooFewDescriptors`.
  private static func requireDescriptors() throws {
    let limit = try DescriptorLimit.raiseSoftToHard()
    guard limit.soft >= descriptorCountMin else {
      throw CommandError(.tooFewDescriptors, detail: "\(limit.soft), and it needs \(descriptorCountMin)")
    }
  }
}

/// A command that takes `--json`, and then reports errors as JSON too.
protocol ReportingCommand {
  var reportsJSON: Bool { get }
}
