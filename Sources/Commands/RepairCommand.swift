import ArgumentParser
import ContainerStore

struct RepairCommand: ParsableCommand, ReportingCommand {
  static let configuration = CommandConfiguration(
    commandName: "repair",
    abstract: "Writes the catalog anew when one of its two copies is damaged.",
    discussion: """
      Reads both copies of the catalog, prints what is wrong with them, and writes both anew from what is whole. Exit code 0: the catalog \
      is whole now. Exit code 2: a part of it is damaged in both copies. Then only copies of other parts are mended, and everything else can still be copied \
      out with 'dynamics get'; make a backup before you accept a loss. What is damaged in files stays damaged: see 'dynamics container verify'.
      """)

  @Argument(help: "The container.", completion: .directory)
  var dir: String

  @OptionGroup var credential: CredentialOptions

  @Flag(
    help:
      "Gives up the changes from a damaged record of the journal on, and what is in lost blocks of tables; what older tables have of that comes into the folder '/from older tables'."
  )
  var acceptLoss = false

  @Flag(help: "Prints one JSON object.")
  var json = false

  var reportsJSON: Bool { json }

  func run() throws {
    let secret = try credential.secret(for: dir)
    var options = Container.Options()
    options.acceptsOlderState = secret.acceptsOlderState
    let report = try Container.repair(
      at: dir, credential: secret.credential(), options: options, acceptsLoss: acceptLoss)
    let summary = RepairSummary(
      written: report.wasWritten, findings: report.findings.map(FindingDescription.init))
    try StandardOutput.write(json ? JSONText.of(summary) : summary.text)
  }
}

private struct RepairSummary: Encodable {
  var written: Bool
  var findings: [FindingDescription]

  var text: String {
    findings.map { $0.text + "\n" }.joined()
      + (written ? "written anew\n" : "both copies of the catalog are whole\n")
  }
}
