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
  /// Whether names may be among what is lost, and are left out unnamed.
  private var hasLostNames = false
  private let asJSON: Bool

  init(asJSON: Bool = false) { self.asJSON = asJSON }

  func add(_ error: ContainerError) {
    if let path = error.path { paths.insert(path) }
    hasLostNames = hasLostNames || error.code == .tableDamaged
    ErrorReport(error)?.write(asJSON: asJSON, withRemedy: false)
  }

  /// Throws the exit code when something was left out.
  func finish() throws {
    guard !paths.isEmpty else { return }
    if !asJSON {
      StandardError.write(
        "dynamics: left out, because it is damaged: \(Quantity.count(paths.count, "item"))\n"
          + (hasLostNames
            ? "  files whose names were lost are left out, too; what else there is, is there"
            : "  everything else is there")
          + "; container verify tells what is damaged\n"
      )
    }
    throw ExitCode(ExitStatus.damage.code)
  }
}
