import Identifiers
import SodiumPrimitives

/// Who may see the page: a token that is good once, and the sessions that came of it.
///
/// The page's own server forgets all of it when it ends.
struct PageSessions {
  struct Session {
    /// SHA-256 of the secret, which only the browser's tab has.
    var key: [UInt8]
    /// When a person did something last.
    var lastUse: Duration
  }

  /// What a tab gets for a token.
  struct Grant: Encodable {
    var id: String
    var secret: String
  }

  private(set) var sessions: [String: Session] = [:]
  /// SHA-256 of the token that is good now.
  private var token: [UInt8] = []
  let time: Duration
  static let countMax = 16

  init(time: Duration) { self.time = time }

  /// A new token; the one before is good no more.
  mutating func drawToken() -> String {
    let text = Self.secret()
    token = SHA256.hash(Array(text.utf8))
    return text
  }

  /// Makes a session, for the token that is good now. It is not good again.
  mutating func exchange(_ text: String, at now: Duration) -> Grant? {
    guard !token.isEmpty, Self.equal(SHA256.hash(Array(text.utf8)), token) else { return nil }
    token = []
    if sessions.count >= Self.countMax, let oldest = sessions.min(by: { $0.value.lastUse < $1.value.lastUse })
    {
      sessions[oldest.key] = nil
    }
    let grant = Grant(id: Hexadecimal.text(Random.bytes(8)), secret: Self.secret())
    sessions[grant.id] = Session(key: SHA256.hash(Array(grant.secret.utf8)), lastUse: now)
    return grant
  }

  /// The session of a header `<id>.<secret>`; nil when there is none.
  func id(of header: String?) -> String? {
    guard let parts = header?.split(separator: ".", omittingEmptySubsequences: false), parts.count == 2,
      let session = sessions[String(parts[0])],
      Self.equal(SHA256.hash(Array(parts[1].utf8)), session.key)
    else { return nil }
    return String(parts[0])
  }

  /// Shows that this server knows the secret's hash, without saying it; nil for a session that is none.
  func proof(of id: String, _ nonce: String, at origin: String) -> String? {
    sessions[id].map {
      Hexadecimal.text(SHA256.authenticate(Array("\(Self.context)\n\(origin)\n\(nonce)".utf8), key: $0.key))
    }
  }

  static let context = "opendynamics launcher"

  /// A person does something.
  mutating func use(_ id: String, at now: Duration) { sessions[id]?.lastUse = now }

  mutating func end(_ id: String) { sessions[id] = nil }

  /// Ends those that nobody has used for too long. Returns when the next one is due; nil without sessions.
  mutating func expire(at now: Duration) -> Duration? {
    sessions = sessions.filter { $0.value.lastUse + time > now }
    return sessions.values.map(\.lastUse).min().map { $0 + time }
  }

  /// 256 bits.
  private static func secret() -> String { Hexadecimal.text(Random.bytes(32)) }

  private static func equal(_ a: [UInt8], _ b: [UInt8]) -> Bool {
    a.withUnsafeBytes { a in b.withUnsafeBytes { KeyedHash.equal(a, $0) } }
  }
}
