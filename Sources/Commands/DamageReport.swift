import ArgumentParser
import ContainerStore

struct DamageOptions: ParsableArguments {
  @Flag(help: "Ends at the first file of a folder that is damaged, and leaves nothing of the folder.")
  var stopAtDamage = false

  /// Nil when the first damage is to end the command.
  func report() -> DamageReport? { stopAtDamage ? nil : DamageReport() }
}

/// Lists on standard error the damaged files that a command leaves out, and turns its exit code into that for damage.
final class DamageReport {
  /// Paths in a container.
  private(set) var paths: Set<String> = []
  private let asJSON: Bool

  init(asJSON: Bool = false) { self.asJSON = asJSON }

  func add(_ error: ContainerError) {
    if let path = error.path { paths.insert(path) }
    ErrorReport(error)?.write(asJSON: asJSON, withRemedy: false)
  }

  /// Throws the exit code when something was left out.
  func finish() throws {
    guard !paths.isEmpty else { return }
    if !asJSON {
      StandardError.write(
        "dynamics: left out, because it is damaged: \(Quantity.count(paths.count, "item"))\n"
          + "  everything else is there; container verify tells what is damaged\n"
      )
    }
    throw ExitCode(ExitStatus.damage.code)
  }
}
