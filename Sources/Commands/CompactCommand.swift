import ArgumentParser
import ContainerStore

struct CompactCommand: ParsableCommand, ReportingCommand {
  static let configuration = CommandConfiguration(
    commandName: "compact", abstract: "Gives back the space of what was removed or replaced.",
    discussion: """
      Moves what is left in mostly empty slabs together, opening everything that it moves. It may be interrupted at any time, and
      goes on from there the next time. What does not open stays where it is, and is reported with exit code 2.
      """)

  @Argument(help: "The container.", completion: .directory)
  var dir: String

  @OptionGroup var credential: CredentialOptions
  @OptionGroup var bulk: BulkOptions

  @Flag(help: "Prints one JSON object.")
  var json = false

  var reportsJSON: Bool { json }

  func run() throws {
    let secret = try credential.secret(for: dir)
    let receipt = try withContainer(
      at: dir, secret, mode: .readWrite, options: try bulk.containerOptions(),
      findings: bulk.findings(asJSON: json)
    ) {
      container in
      try bulk.withProgress("compact") { try container.compact(control: $0) }
    }
    let summary = CompactionSummary(receipt)
    if json || !bulk.quiet || !summary.findings.isEmpty {
      try StandardOutput.write(json ? JSONText.of(summary) : summary.text)
    }
    if !summary.findings.isEmpty { throw ExitCode(ExitStatus.damage.code) }
  }
}

private struct CompactionSummary: Encodable {
  var slabCount: Int
  var copiedByteCount: UInt64
  var freedByteCount: UInt64
  var findings: [FindingDescription]

  init(_ receipt: CompactionReceipt) {
    slabCount = receipt.slabCount
    copiedByteCount = receipt.copiedByteCount
    freedByteCount = receipt.freedByteCount
    findings = receipt.findings.map(FindingDescription.init)
  }

  var text: String {
    findings.map { $0.text + "\n" }.joined()
      + "freed \(Quantity.bytes(freedByteCount)), moved \(Quantity.bytes(copiedByteCount)) out of \(Quantity.count(slabCount, "slab"))\n"
  }
}
