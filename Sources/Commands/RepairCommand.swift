import ArgumentParser
import ContainerStore

struct RepairCommand: ParsableCommand, ReportingCommand {
  static let configuration = CommandConfiguration(
    commandName: "repair",
    abstract: "Reads the whole catalog, and uses its second copy where that one alone is whole.",
    discussion: """
      For a container that says 'a table of the catalog is damaged'. Changes that came after the second copy are in journals, and are kept.
      Prints what was found; exit code 0 when the container can be used again. What is damaged in files stays damaged.
      """)

  @Argument(help: "The container.", completion: .directory)
  var dir: String

  @OptionGroup var credential: CredentialOptions

  @Flag(help: "Prints one JSON object.")
  var json = false

  var reportsJSON: Bool { json }

  func run() throws {
    let secret = try credential.secret(for: dir)
    var options = Container.Options()
    options.checksCatalog = true
    // Closing writes a catalog anew that was read from its second copy.
    let findings = try withContainer(at: dir, secret, mode: .readWrite, options: options, findings: .none) {
      $0.findings.map(FindingDescription.init)
    }
    let summary = RepairSummary(findings: findings)
    try StandardOutput.write(json ? JSONText.of(summary) : summary.text)
  }
}

private struct RepairSummary: Encodable {
  var findings: [FindingDescription]

  var text: String {
    findings.isEmpty ? "the catalog is whole\n" : findings.map { $0.text + "\n" }.joined() + "written anew\n"
  }
}
