import ArgumentParser
import ContainerStore

struct DamageOptions: ParsableArguments {
  @Flag(help: "Ends at the first file of a folder that is damaged, and leaves nothing of the folder.")
  var stopAtDamage = false

  /// Nil when the first damage is to end the command.
  func report() -> DamageReport? { stopAtDamage ? nil : DamageReport() }
}

struct SourceOptions: ParsableArguments {
  @Flag(
    help:
      "Ends at the first file of a folder that cannot be read or stored, and stores nothing of the folder.")
  var allOrNothing = false

  /// Nil when the first such file is to end the command.
  func report() -> DamageReport? { allOrNothing ? nil : DamageReport(ofSources: true) }
}

/// Lists on standard error the damaged files that a command leaves out, and turns its exit code into that for damage; or those
/// native ones that cannot be read or stored, with the exit code for a failure.
final class DamageReport {
  /// Paths in a container.
  private(set) var paths: Set<String> = []
  private var count = 0
  /// Whether something was damaged, and not only refused by the native file system.
  private var hasDamage = false
  /// The exit code for what was refused, as long as all of it has the same.
  private var refusal: ExitStatus?
  /// Whether names may be among what is lost, and are left out unnamed.
  private var hasLostNames = false
  private let asJSON: Bool
  private let isOfSources: Bool

  init(asJSON: Bool = false, ofSources: Bool = false) {
    self.asJSON = asJSON
    isOfSources = ofSources
  }

  func add(_ error: ContainerError) {
    count += 1
    if let path = error.path { paths.insert(path) }
    hasDamage = hasDamage || error.isDamage
    hasLostNames = hasLostNames || error.isOfNames
    guard let report = ErrorReport(error) else { return }
    refusal = isOfSources || refusal != nil && refusal != report.status ? .failure : report.status
    report.write(asJSON: asJSON, withRemedy: false)
  }

  /// Throws the exit code when something was left out.
  func finish() throws {
    guard count > 0 else { return }
    let status = hasDamage ? .damage : refusal ?? .failure
    if !hasDamage, !asJSON {
      StandardError.write(
        "dynamics: left out: \(Quantity.count(max(paths.count, 1), "item"))\n  everything else is \(isOfSources ? "stored" : "there")\n"
      )
    }
    if hasDamage, !asJSON {
      StandardError.write(
        "dynamics: left out, because it is damaged: \(Quantity.count(max(paths.count, 1), "item"))\n"
          + (hasLostNames
            ? "  files whose names were lost are left out, too; what else there is, is there"
            : "  everything else is there")
          + "; container verify tells what is damaged\n"
      )
    }
    throw ExitCode(status.code)
  }
}
