import ArgumentParser
import ContainerStore

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

/// The places that may have a secret, in their order: an option, the environment, the credentials of a service, the terminal.
struct SecretPlaces {
  /// The part that the secret plays. The raw value is in the names.
  enum Role: String {
    case container = ""
    case receiver = "to-"
    case new = "new-"
    case old = "old-"
  }

  let role: Role
  let passphraseFile: String?
  let passphraseCommand: String?
  let keyFile: String?

  private enum Place {
    case passphraseFile(String)
    case passphraseCommand(String)
    case keyFile(String)
    case variable(String)

    func secret() throws -> Secret {
      switch self {
      case .passphraseFile(let path): try SecretInput.passphraseFile(path)
      case .passphraseCommand(let command): try SecretInput.passphrase(printedBy: command)
      case .keyFile(let path): try SecretInput.keyFile(path)
      case .variable(let name): try SecretInput.variable(name)
      }
    }
  }

  private typealias Named = (name: String, place: Place)

  /// The names of the options that are given.
  var options: [String] { given.map(\.name) }

  private var given: [Named] {
    var given: [Named] = []
    if let passphraseFile { given.append((option("passphrase-file"), .passphraseFile(passphraseFile))) }
    if let passphraseCommand {
      given.append((option("passphrase-command"), .passphraseCommand(passphraseCommand)))
    }
    if let keyFile { given.append((option("key-file"), .keyFile(keyFile))) }
    return given
  }

  private func option(_ name: String) -> String { "--" + role.rawValue + name }

  func requireOne() throws {
    if options.count > 1 { throw ValidationError("Give \(options[0]) or \(options[1]), not both.") }
  }

  func secret(prompt: String, asksTwice: Bool) throws -> Secret {
    if let secret = try secretWithoutAsking() { return secret }
    if let secret = try SecretInput.terminal(prompt, twice: asksTwice) { return secret }
    throw CommandError(.noPassphrase, detail: "the environment variable is \(variable("PASSPHRASE"))")
  }

  private func secretWithoutAsking() throws -> Secret? {
    if let option = given.first { return try option.place.secret() }
    for places in [variables, credentials] where !places.isEmpty {
      guard places.count == 1 else {
        throw CommandError(.tooManySecrets, detail: places.map(\.name).joined(separator: ", "))
      }
      return try places[0].place.secret()
    }
    return nil
  }

  // MARK: Environment

  private func variable(_ name: String) -> String {
    "DYNAMICS_" + role.rawValue.uppercased().replacing("-", with: "_") + name
  }

  /// Whether a variable of the environment has a secret, or says where one is.
  static func isOfSecret(_ variable: UnsafePointer<CChar>) -> Bool {
    guard strncmp(variable, "DYNAMICS_", 9) == 0 else { return false }
    let name = String(
      decoding: UnsafeRawBufferPointer(start: variable, count: strlen(variable)).prefix {
        $0 != UInt8(ascii: "=")
      }, as: UTF8.self)
    return name.contains("PASSPHRASE") || name.contains("KEY_FILE")
  }

  /// An empty passphrase is a mistake; an empty name is how a shell takes a variable back.
  private var variables: [Named] {
    var found: [Named] = []
    let passphrase = variable("PASSPHRASE")
    if SecretInput.hasVariable(passphrase) { found.append((passphrase, .variable(passphrase))) }
    let files: [(String, (String) -> Place)] = [
      ("PASSPHRASE_FILE", Place.passphraseFile), ("PASSPHRASE_COMMAND", Place.passphraseCommand),
      ("KEY_FILE", Place.keyFile),
    ]
    for (name, place) in files {
      let name = variable(name)
      if let value = Environment.value(name), !value.isEmpty { found.append((name, place(value))) }
    }
    return found
  }

  /// What the system's manager gives a service: LoadCredential=dynamics.passphrase:… (systemd.exec(5), "Credentials").
  private var credentials: [Named] {
    guard let directory = Environment.value("CREDENTIALS_DIRECTORY"), !directory.isEmpty else { return [] }
    let files: [(String, (String) -> Place)] = [("passphrase", Place.passphraseFile), ("key", Place.keyFile)]
    return files.compactMap { name, place in
      let path = directory + "/dynamics." + role.rawValue + name
      return (try? NativeKind(at: path)) ?? .missing == .missing ? nil : (path, place(path))
    }
  }
}
