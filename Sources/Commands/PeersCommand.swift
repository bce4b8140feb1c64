import AppKinetics
import ArgumentParser
import SecureFiles

struct PeersCommand: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "peers",
    abstract: "Shows the keys of the apps that a container's app has met, and says which are trusted.",
    subcommands: [ListPeersCommand.self, TrustPeerCommand.self, ForgetPeerCommand.self])
}

struct ListPeersCommand: ParsableCommand, ReportingCommand {
  static let configuration = CommandConfiguration(
    commandName: "list",
    abstract: "The fingerprints of the container's own key and of each app that it has met.")

  @Argument(help: "The app's container.", completion: .directory)
  var dir: String

  @OptionGroup var credential: CredentialOptions

  @Flag(help: "Prints one JSON object.")
  var json = false

  var reportsJSON: Bool { json }

  func run() throws {
    let secret = try credential.secret(for: dir)
    let list = try withContainer(at: dir, secret, mode: .readOnly) { try PeerList(SecureContainer($0)) }
    try StandardOutput.write(json ? JSONText.of(list) : list.text)
  }
}

private struct PeerList: Encodable {
  struct Peer: Encodable {
    let appID: String
    let keyFingerprint, newKeyFingerprint: String?
    /// When the trusted key was taken.
    let date: String
  }

  let ownKeyFingerprint: String?
  let peers: [Peer]

  init(_ container: SecureContainer) throws {
    ownKeyFingerprint = try PeerKey.ownFingerprint(in: container)
    peers = try PeerKey.all(in: container).map { peer in
      Peer(
        appID: peer.application.text, keyFingerprint: peer.fingerprint,
        newKeyFingerprint: peer.newFingerprint,
        date: Quantity.timestamp(Int64((peer.date.timeIntervalSince1970 * 1e3).rounded()) * 1_000_000))
    }
  }

  var text: String {
    peers.map { peer in
      var text = "\(peer.appID)\n  key  \(peer.keyFingerprint ?? "none: its record is damaged")\n"
      if let new = peer.newKeyFingerprint {
        text += "  new  \(new), not trusted: nothing is exchanged until it is\n"
      }
      return text
    }.joined() + (ownKeyFingerprint.map { "own key \($0)\n" } ?? "")
  }
}

struct TrustPeerCommand: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "trust",
    abstract: "Trusts the key that an app has now, or once more the one that it had.",
    discussion: """
      Compare the fingerprint with what the other app's user sees as its own key (dynamics peers list). Messages that wait for the app go \
      to whoever has the key.
      """)

  @Argument(help: "The container of the app that trusts.", completion: .directory)
  var dir: String

  @Argument(help: "The other app's id.")
  var appID: String

  @Argument(help: "The fingerprint of its key, as one word or in groups.")
  var fingerprint: [String]

  @OptionGroup var credential: CredentialOptions

  func validate() throws { try checkApplicationID(appID, "APP_ID") }

  func run() throws {
    let secret = try credential.secret(for: dir)
    try withContainer(at: dir, secret, mode: .readWrite) {
      try PeerKey.trust(
        ApplicationID(appID), fingerprint: fingerprint.joined(), in: SecureContainer($0))
    }
  }
}

struct ForgetPeerCommand: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "forget",
    abstract: "Forgets an app's key: whoever has its id at the next meeting is it.")

  @Argument(help: "The container of the app that forgets.", completion: .directory)
  var dir: String

  @Argument(help: "The other app's id.")
  var appID: String

  @OptionGroup var credential: CredentialOptions

  func validate() throws { try checkApplicationID(appID, "APP_ID") }

  func run() throws {
    let secret = try credential.secret(for: dir)
    try withContainer(at: dir, secret, mode: .readWrite) {
      guard try PeerKey.forget(ApplicationID(appID), in: SecureContainer($0)) else {
        throw ServicesError(.applicationNotFound, detail: "no key of \(appID) is known here")
      }
    }
  }
}
