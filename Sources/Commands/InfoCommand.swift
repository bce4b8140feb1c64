import ArgumentParser
import ContainerStore

struct InfoCommand: ParsableCommand, ReportingCommand {
  static let configuration = CommandConfiguration(
    commandName: "info", abstract: "Says what is known of a container as a whole.")

  @Argument(help: "The container.", completion: .directory)
  var dir: String

  @OptionGroup var credential: CredentialOptions

  @Flag(help: "Prints one JSON object.")
  var json = false

  var reportsJSON: Bool { json }

  func run() throws {
    Interruption.shared.endAtOnce()
    let secret = try credential.secret(for: dir)
    let description = try withContainer(at: dir, secret, mode: .readOnly, findings: .none) {
      ContainerDescription(try $0.info(), staged: (try? $0.stagedMessages()) ?? [], findings: $0.findings)
    }
    try StandardOutput.write(json ? JSONText.of(description) : description.text)
  }
}

/// What `info` prints.
private struct ContainerDescription: Encodable {
  var id: String
  var created: String
  var commit: UInt64
  var generation: UInt64
  var fileCount: Int
  var directoryCount: Int
  var byteCount: UInt64
  var slabCount: Int
  var liveByteCount: UInt64
  var slabByteCount: UInt64
  var deadByteCount: UInt64
  var reservedByteCount: UInt64
  /// Messages that have begun to arrive, and the bytes that they take.
  var stagedMessageCount: Int
  var stagedByteCount: UInt64
  var keys: [KeyDescription]
  var findings: [FindingDescription]

  init(_ info: ContainerInfo, staged: [StagedMessage], findings: [Finding]) {
    id = info.id.hex
    created = Quantity.timestamp(info.created)
    commit = info.commit
    generation = info.generation
    fileCount = info.fileCount
    directoryCount = info.directoryCount
    byteCount = info.byteCount
    slabCount = info.slabCount
    liveByteCount = info.liveByteCount
    slabByteCount = info.slabByteCount
    deadByteCount = info.deadByteCount
    reservedByteCount = info.reservedByteCount
    stagedMessageCount = staged.count
    stagedByteCount = staged.storedByteCount
    keys = info.keys.map { KeyDescription($0) }
    self.findings = findings.map(FindingDescription.init)
  }

  var text: String {
    let files = "\(fileCount) in \(Quantity.count(directoryCount, "folder")), the root included"
    let stored =
      "\(Quantity.bytes(liveByteCount)) live, \(Quantity.bytes(deadByteCount)) dead, \(Quantity.bytes(reservedByteCount)) reserved"
    var rows = [
      ("id", id), ("created", created), ("files", files),
      ("contents", "\(Quantity.bytes(byteCount)) (\(byteCount) bytes)"),
      ("stored", "\(stored); \(Quantity.count(slabCount, "slab"))"),
      ("commit", "\(commit), generation \(generation)"), ("keys", keys.map(\.text).joined(separator: ", ")),
    ]
    if stagedMessageCount > 0 {
      let messages = Quantity.count(stagedMessageCount, "unfinished message")
      rows.append(("staged", "\(messages), \(Quantity.bytes(stagedByteCount)); \(StagedMessage.advice)"))
    }
    let width = 10
    return rows.map { name, value in
      name + String(repeating: " ", count: width - name.utf8.count) + value + "\n"
    }.joined() + findings.map { $0.text + "\n" }.joined()
  }
}
