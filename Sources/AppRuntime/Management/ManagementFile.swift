public import Foundation
public import ServiceValues
public import SodiumPrimitives

/// What an owner decided for an app: the whole of its management (Documentation/RUNTIME.md, "The management file").
public struct ManagementFile: Sendable, Hashable {
  /// The most bytes of a file.
  public static let byteCountMax = 1 << 20
  /// JSON keeps whole numbers up to this one exact everywhere.
  static let serials: ClosedRange<Int64> = 1...(1 << 53) - 1

  /// The text, as it was read.
  public let text: Data
  /// Grows with each decision. A file with a lower one than the accepted one is refused.
  public let serial: Int64
  /// What the person reads while the owner blocks the app.
  public let block: Notice?
  /// The serial of the file that ordered the remote lock; nil without one.
  public let lockSerial: Int64?
  /// The hash of the code that ends the remote lock.
  public let unlockCode: SecretHash?
  /// Versions by entitlement id; nil: the file does not decide.
  public let entitlements: [String: Set<ServiceVersion>]?
  /// What is configured for the app.
  public let configuration: AppConfiguration
  /// Any JSON of the owner's.
  public let appPolicy: ServiceValue?
  /// What a password must be.
  public let passwordRules: PasswordRules
  /// The container that is to be destroyed.
  public let wipe: Identifier?

  /// Reads and checks a text. Throws `managementRefused` with the path of what is wrong.
  public init(_ text: Data) throws(AppRuntimeError) {
    let root = "management"
    guard text.count <= Self.byteCountMax else {
      throw AppRuntimeError(
        .managementRefused, path: root, detail: "it has more than \(Self.byteCountMax) bytes")
    }
    do throws(Problem) {
      try self.init(text, JSONNode(json: [UInt8](text), root: root))
    } catch {
      throw AppRuntimeError(.managementRefused, path: error.pathText, detail: error.detail)
    }
  }

  private init(_ text: Data, _ node: JSONNode) throws(Problem) {
    self.text = text
    // A later version may have other members: its number is what a person has to read.
    let version = try node.requiredMember("version")
    guard try version.integer() == 1 else { throw version.problem("this version of the program reads 1") }
    try node.requireMembers(among: [
      "version", "serial", "blocked", "locked", "unlockCode", "entitlements", "configuration", "appPolicy",
      "passwordRules", "wipe",
    ])
    serial = try node.requiredMember("serial").integer(in: Self.serials)
    block = try node.member("blocked").map { node throws(Problem) in try Self.notice(node) }
    unlockCode = try node.member("unlockCode").map { node throws(Problem) in
      guard let code = SecretHash(try node.string()) else {
        throw node.problem(
          "it is no hash of Argon2id with at most 1 GiB and 16 passes; `dynamics manage` makes one")
      }
      return code
    }
    if let locked = try node.member("locked") {
      lockSerial = try locked.integer(in: 1...serial)
      if unlockCode == nil { _ = try node.requiredMember("unlockCode") }
    } else {
      lockSerial = nil
    }
    entitlements = try node.member("entitlements").map { node throws(Problem) in try Self.entitlements(node) }
    configuration =
      try node.member("configuration").map { node throws(Problem) in try AppConfiguration(node) }
      ?? AppConfiguration()
    appPolicy = try node.member("appPolicy")?.value
    passwordRules =
      try node.member("passwordRules").map { node throws(Problem) in try PasswordRules(node) }
      ?? PasswordRules()
    wipe = try node.member("wipe").map { node throws(Problem) in
      guard let id = Identifier(hex: try node.string()) else { throw node.problem("it is no container's id") }
      return id
    }
  }

  private static func notice(_ node: JSONNode) throws(Problem) -> Notice {
    try node.requireMembers(among: ["title", "text"])
    for name in ["title", "text"] {
      guard let member = try node.member(name) else { continue }
      if try member.string().utf8.count > Notice.byteCountMax {
        throw member.problem("it has more than \(Notice.byteCountMax) bytes")
      }
    }
    return Notice(title: try node.text("title") ?? "", text: try node.text("text") ?? "")
  }

  private static func entitlements(_ node: JSONNode) throws(Problem) -> [String: Set<ServiceVersion>] {
    var entitlements: [String: Set<ServiceVersion>] = [:]
    for (id, list) in try node.members() {
      var versions: Set<ServiceVersion> = []
      for element in try list.elements() {
        let text = try element.string()
        do throws(ServicesError) {
          versions.insert(try ServiceVersion(text))
        } catch {
          throw element.problem(error.detail ?? "it is no version")
        }
      }
      entitlements[id] = versions
    }
    return entitlements
  }

  /// What the file says about one entitlement.
  public func entitlement(_ id: String, _ version: ServiceVersion) -> Authorization.Entitlement {
    guard let entitlements else { return .entitled }
    guard let versions = entitlements[id], !versions.isEmpty else { return .notEntitled }
    return versions.contains(version) ? .entitled : .versionNotEntitled
  }
}

extension JSONNode {
  func integer(in range: ClosedRange<Int64>) throws(Problem) -> Int64 {
    let number = try integer()
    guard range.contains(number) else {
      throw problem("expected \(range.lowerBound) to \(range.upperBound), found \(number)")
    }
    return number
  }
}

extension PasswordRules {
  init(_ node: JSONNode) throws(Problem) {
    try node.requireMembers(among: [
      "minimumLength", "requiresDigit", "requiresLetterCases", "requiresOther", "maximumDays", "history",
      "attempts",
      "idleSeconds",
    ])
    func count(_ name: String, _ range: ClosedRange<Int64>) throws(Problem) -> Int? {
      try node.member(name).map { node throws(Problem) in Int(try node.integer(in: range)) }
    }
    minimumLength = try count("minimumLength", Self.lengths)
    requiresDigit = try node.member("requiresDigit")?.boolean() ?? false
    requiresLetterCases = try node.member("requiresLetterCases")?.boolean() ?? false
    requiresOther = try node.member("requiresOther")?.boolean() ?? false
    maximumDays = try count("maximumDays", Self.days)
    history = try count("history", Self.histories)
    attempts = try count("attempts", Self.attemptCounts)
    idleSeconds = try count("idleSeconds", Self.idleTimes)
  }
}
