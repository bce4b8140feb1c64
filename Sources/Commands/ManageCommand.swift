import AppRuntime
import ArgumentParser
import ContainerStore
import Foundation
import ServiceValues
import SodiumPrimitives

struct ManageCommand: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "manage",
    abstract: "Writes, checks and explains the file with which an owner manages an app.",
    discussion: """
      An app that runs with --managed FILE reads the file when it is replaced, and does what it says: locks itself, is blocked, destroys its container. \
      Each change is a new decision with the next serial. Documentation/RUNTIME.md lists the members.
      """,
    subcommands: [
      ShowManagementCommand.self, SetManagementCommand.self, UnsetManagementCommand.self,
      ManagementCodeCommand.self, LockManagementCommand.self, WipeManagementCommand.self,
    ])
}

struct ManagementFileArgument: ParsableArguments {
  @Argument(help: "The management file.", completion: .file())
  var file: String

  @Option(
    help: ArgumentHelp(
      "The new serial is greater than this one, for a file that was lost or put back.", valueName: "serial"))
  var after: Int64 = 0

  /// Changes the file, and prints its new serial.
  func change(_ body: (inout ManagementDraft) throws -> Void) throws {
    var draft = try ManagementDraft(at: file, after: after)
    try body(&draft)
    let written = try draft.write()
    try StandardOutput.write("serial \(written.serial)\n")
  }
}

struct SetManagementCommand: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "set", abstract: "Sets a member of the file, which is made when it is missing.",
    discussion: """
      dynamics manage set FILE blocked '{"title": "Blocked", "text": "Call the help desk."}'
      dynamics manage set FILE passwordRules '{"minimumLength": 8, "attempts": 10, "idleSeconds": 600}'
      """)

  @OptionGroup var file: ManagementFileArgument

  @Argument(help: "The member's name.")
  var member: String

  @Argument(help: "Its value as JSON.")
  var value: String

  func run() throws {
    guard !["version", "serial"].contains(member) else {
      throw ValidationError("The serial follows from the file, and the version from this program.")
    }
    let value = try ServiceValue(plainJSON: Array(value.utf8), root: "management.\(member)")
    try file.change { $0[member] = value }
  }
}

struct UnsetManagementCommand: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "unset", abstract: "Removes a member of the file: what it said does not hold any more.")

  @OptionGroup var file: ManagementFileArgument

  @Argument(help: "The member's name.")
  var member: String

  func run() throws {
    try file.change { draft in
      guard draft[member] != nil else {
        throw ValidationError("The file has no member \(PrintableText.of(member)).")
      }
      draft[member] = nil
    }
  }
}

struct ManagementCodeCommand: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "code", abstract: "Sets the code that ends a remote lock.",
    discussion: "The file gets a hash of it. Without a file for the code it is asked for on the terminal.")

  @OptionGroup var file: ManagementFileArgument

  @Option(
    help: ArgumentHelp("The code is the first line of this file.", valueName: "file"), completion: .file())
  var codeFile: String?

  func run() throws {
    let secret: Secret
    if let codeFile {
      secret = try SecretInput.passphraseFile(codeFile)
    } else {
      guard let typed = try SecretInput.terminal("Unlock code", twice: true) else {
        throw CommandError(.noPassphrase)
      }
      secret = typed
    }
    let hash = try SecretHash(hashing: secret.bytes)
    try file.change { $0["unlockCode"] = .string(hash.text) }
  }
}

struct LockManagementCommand: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "lock", abstract: "Orders a remote lock, which the unlock code ends.",
    discussion: "Set the code before (dynamics manage code). Later changes of the file do not lock again.")

  @OptionGroup var file: ManagementFileArgument

  func run() throws {
    try file.change { draft in
      guard draft["unlockCode"] != nil else {
        throw ValidationError(
          "A lock needs a code that ends it: dynamics manage code \(PrintableText.of(file.file))")
      }
      draft["locked"] = .integer(draft.nextSerial)
    }
  }
}

struct WipeManagementCommand: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "wipe", abstract: "Orders that one container is destroyed for good.",
    discussion: "The app that is managed with the file destroys it, and no other container.")

  @OptionGroup var file: ManagementFileArgument

  @Argument(help: "The directory of the container, or its id.", completion: .directory)
  var container: String

  @Flag(help: "Confirms that the container is to be destroyed.")
  var yes = false

  func run() throws {
    let id = try Identifier(hex: container) ?? Container.id(at: container)
    guard yes else { throw CommandError(.notConfirmed, path: container) }
    try file.change { $0["wipe"] = .string(id.hex) }
  }
}

struct ShowManagementCommand: ParsableCommand, ReportingCommand {
  static let configuration = CommandConfiguration(
    commandName: "show", abstract: "Checks a file, and says what it decides and whom it binds.")

  @Argument(help: "The management file.", completion: .file())
  var file: String

  @Flag(help: "Prints one JSON object.")
  var json = false

  var reportsJSON: Bool { json }

  func run() throws {
    let source = ManagementSource(path: file)
    guard let text = try source.read() else { throw CommandError(.nativeMissing, path: file) }
    let description = ManagementDescription(try ManagementFile(text), replaceable: source.replaceable)
    try StandardOutput.write(json ? JSONText.of(description) : description.text)
  }
}

/// What a management file decides, for people or programs.
private struct ManagementDescription: Encodable {
  var serial: Int64
  /// Somebody other than root could replace the file, at this path.
  var replaceable: String?
  var decisions: [String]

  init(_ file: ManagementFile, replaceable: String?) {
    serial = file.serial
    self.replaceable = replaceable
    decisions = Self.decisions(of: file)
  }

  var text: String {
    let binding =
      replaceable.map { "advice: somebody other than root can replace \(PrintableText.of($0))" }
      ?? "binding: only root can replace the file"
    return (["serial \(serial)", binding] + decisions).map { $0 + "\n" }.joined()
  }

  private static func decisions(of file: ManagementFile) -> [String] {
    var lines: [String] = []
    if let block = file.block {
      lines.append("blocked: \(PrintableText.of([block.title, block.text].joined(separator: ", ")))")
    }
    if let serial = file.lockSerial {
      lines.append("locked remotely since serial \(serial), until the unlock code")
    }
    if file.unlockCode != nil { lines.append("an unlock code is set") }
    for (id, versions) in (file.entitlements ?? [:]).sorted(by: { $0.key < $1.key }) {
      let text = versions.map(\.text).sorted().joined(separator: " ")
      lines.append("entitled: \(PrintableText.of(id)) \(text.isEmpty ? "in no version" : text)")
    }
    if file.entitlements?.isEmpty == true { lines.append("entitled: to nothing") }
    lines += rules(file.passwordRules)
    if file.configuration != AppConfiguration() { lines.append("configuration for the app") }
    if file.appPolicy != nil { lines.append("policy for the app") }
    if let id = file.wipe { lines.append("destroys the container \(id.hex)") }
    return lines
  }

  private static func rules(_ rules: PasswordRules) -> [String] {
    var lines: [String] = []
    if let length = rules.minimumLength { lines.append("password: at least \(length) characters") }
    if rules.requiresDigit { lines.append("password: a digit") }
    if rules.requiresLetterCases { lines.append("password: a lower-case and an upper-case letter") }
    if rules.requiresOther { lines.append("password: a character that is neither a letter nor a digit") }
    if let days = rules.maximumDays { lines.append("password: a new one after \(days) days") }
    if let history = rules.history { lines.append("password: none of the last \(history)") }
    if let attempts = rules.attempts { lines.append("password: \(attempts) wrong ones lock the app") }
    if let seconds = rules.idleSeconds { lines.append("idle after \(seconds) s") }
    return lines
  }
}
