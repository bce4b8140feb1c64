import ArgumentParser
import ContainerStore

struct BackupCommand: ParsableCommand, ReportingCommand {
  static let configuration = CommandConfiguration(
    commandName: "backup", abstract: "Copies a container as it is, encrypted, also while it is in use.",
    discussion: """
      The copy holds the state of the moment in which it began, and the same passphrases and keys open it. Nothing is decrypted: whether
      what is stored is whole, 'container verify' tells, of the container and of the copy. What the system does not read is left out
      and reported, with exit code 2.
      """)

  @Argument(help: "The container.", completion: .directory)
  var dir: String

  @Argument(help: "The directory to make.", completion: .directory)
  var destination: String

  @OptionGroup var credential: CredentialOptions
  @OptionGroup var bulk: BulkOptions

  @Flag(help: "Prints one JSON object.")
  var json = false

  var reportsJSON: Bool { json }

  func run() throws {
    let secret = try credential.secret(for: dir)
    let receipt = try withContainer(
      at: dir, secret, mode: .readOnly, options: try bulk.containerOptions(),
      findings: bulk.findings(asJSON: json)
    ) {
      container in
      try bulk.withProgress("backup") { try container.backup(to: destination, control: $0) }
    }
    let summary = BackupSummary(
      commit: receipt.commit, fileCount: receipt.fileCount, byteCount: receipt.byteCount,
      findings: receipt.findings.map(FindingDescription.init))
    if json || !bulk.quiet || !summary.findings.isEmpty {
      try StandardOutput.write(json ? JSONText.of(summary) : summary.text)
    }
    if !summary.findings.isEmpty { throw ExitCode(ExitStatus.damage.code) }
  }
}

private struct BackupSummary: Encodable {
  var commit: UInt64
  var fileCount: Int
  var byteCount: UInt64
  var findings: [FindingDescription]

  var text: String {
    findings.map { $0.text + "\n" }.joined()
      + "copied \(Quantity.bytes(byteCount)), the state of commit \(commit)\n"
  }
}
