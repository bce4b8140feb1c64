import ArgumentParser
import ContainerStore

struct VerifyCommand: ParsableCommand, ReportingCommand {
  static let configuration = CommandConfiguration(
    commandName: "verify", abstract: "Reads everything in a container and says what is damaged.",
    discussion: "Exit code 0: intact. Exit code 2: damage was found, and printed.")

  @Argument(help: "The container.", completion: .directory)
  var dir: String

  @OptionGroup var credential: CredentialOptions
  @OptionGroup var bulk: BulkOptions

  @Flag(help: "Prints one JSON object.")
  var json = false

  var reportsJSON: Bool { json }

  func run() throws {
    Interruption.shared.endAtOnce()
    let secret = try credential.secret(for: dir)
    var options = try bulk.containerOptions()
    options.acceptsOlderState = secret.acceptsOlderState
    let begin = ContinuousClock.now
    let report = try bulk.withProgress("verify") {
      try Container.verify(at: dir, credential: secret.credential(), options: options, control: $0)
    }
    let verdict = Verdict(report, seconds: begin.secondsSince)
    if json || !bulk.quiet || !verdict.intact {
      try StandardOutput.write(json ? JSONText.of(verdict) : verdict.text)
    }
    if !verdict.intact { throw ExitCode(ExitStatus.damage.code) }
  }
}

private struct Verdict: Encodable {
  var intact: Bool
  var fileCount: Int
  var byteCount: UInt64
  var seconds: Double
  var findings: [FindingDescription]

  init(_ report: VerifyReport, seconds: Double) {
    intact = !report.hasDamage
    fileCount = report.fileCount
    byteCount = report.byteCount
    self.seconds = seconds
    findings = report.findings.map(FindingDescription.init)
  }

  var text: String {
    let what = "\(Quantity.count(fileCount, "file")), \(Quantity.bytes(byteCount))"
    let damages = findings.count { $0.severity == Finding.Severity.damage.rawValue }
    return findings.map { $0.text + "\n" }.joined() + FindingDescription.remedy(for: findings)
      + (intact ? "intact: \(what)\n" : "damaged: \(Quantity.count(damages, "finding")) in \(what)\n")
  }
}

extension ContinuousClock.Instant {
  /// Until now.
  var secondsSince: Double { (ContinuousClock.now - self) / .seconds(1) }
}
