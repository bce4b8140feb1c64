package import Foundation
import ServiceValues
import SodiumPrimitives
import SwiftProtobuf

/// What a broker knows beyond its own life.
package struct BrokerRecords: Sendable, Equatable {
  /// What is kept in a file of its own.
  package enum Part: Hashable, Sendable {
    case app(String)
    /// The program of an app.
    case program(String)
    case policy
    case forgotten
  }

  package struct App: Sendable, Equatable {
    /// The first that was enrolled: 32 bytes.
    package var publicKey: Data
    package var activationUser: String
    /// Milliseconds since 1970.
    package var enrolled: UInt64
    package var registration: WireRegister?
    /// Where it enrolled from.
    package var origin: BrokerOrigin
    /// What a process of the app shows that cannot open the container: 32 bytes, or empty.
    package var presenceKey: Data

    package init(
      publicKey: Data, activationUser: String, enrolled: UInt64, origin: BrokerOrigin = .plain,
      registration: WireRegister? = nil, presenceKey: Data = Data()
    ) {
      self.publicKey = publicKey
      self.activationUser = activationUser
      self.enrolled = enrolled
      self.origin = origin
      self.registration = registration
      self.presenceKey = presenceKey
    }
  }

  package var apps: [String: App] = [:]
  /// What starts apps, and which keys an administrator approved, by app id.
  package var programs: [String: WireProgram] = [:]
  package var policy = BrokerPolicy()
  /// For apps that were away.
  package private(set) var forgotten = ForgottenApps()
  /// Names of files of apps that cannot be read (``fileName(_:)``): nobody enrols with these ids.
  package var damagedApps: Set<String> = []

  /// Names of files of programs that cannot be read.
  package var damagedPrograms: Set<String> = []

  /// Why the two apps are not introduced, and the one does not bring the other to front; nil when
  /// they may. An introduction tells each side the key and the user of the other one, so that it is
  /// for apps of one user alone.
  func refusal(of dialler: String, _ target: String) -> ServicesError.Code? {
    if policy.denies(dialler, target) { return .notAllowed }
    return areOfDifferentUsers(dialler, target) ? .enterpriseUserNotMatch : nil
  }

  /// Whether an administrator has named a program that starts the app.
  func mayBeStarted(_ appID: String) -> Bool { programs[appID]?.isStarted == true && !isDamaged(appID) }

  /// Whether the file of the app's program cannot be read.
  func isProgramDamaged(_ appID: String) -> Bool { damagedPrograms.contains(Self.fileName(appID)) }

  /// Whether the app's file cannot be read.
  func isDamaged(_ appID: String) -> Bool { damagedApps.contains(Self.fileName(appID)) }

  package init() {}

  /// The bytes of the part's file: the same for the same part. Nil when the part is no more, and its file has to go.
  package func encoded(_ part: Part) throws -> Data? {
    switch part {
    case .policy: return try WireRules.with { $0.rules = policy.rules }.serializedData()
    case .forgotten: return try forgotten.wire.serializedData()
    case .program(let appID):
      guard let program = programs[appID] else { return nil }
      return try WireInstall.with {
        $0.appID = appID
        $0.program = program
      }.serializedData()
    case .app(let appID):
      guard let app = apps[appID] else { return nil }
      return try WireRecord.with {
        $0.appID = appID
        $0.publicKey = app.publicKey
        $0.activationUser = app.activationUser
        $0.enrolled = Int64(app.enrolled)
        if let registration = app.registration { $0.registration = registration }
        $0.origin = app.origin.label
        $0.presenceKey = app.presenceKey
      }.serializedData()
    }
  }

  /// Takes up an app from the bytes of its file, and returns its id. Throws `malformed` when they are no record, or of an app that is known.
  @discardableResult
  package mutating func decodeApp(_ bytes: Data) throws(ProtocolFault) -> String {
    let record = try WireRecord.known(bytes)
    guard (try? ApplicationID(record.appID)) != nil, apps[record.appID] == nil, record.enrolled >= 0,
      record.publicKey.count == KeyPair.byteCount,
      record.presenceKey.isEmpty || record.presenceKey.count == KeyPair.byteCount
    else { throw .malformed }
    apps[record.appID] = App(
      publicKey: record.publicKey, activationUser: record.activationUser, enrolled: UInt64(record.enrolled),
      origin: BrokerOrigin(label: record.origin),
      registration: record.hasRegistration ? record.registration : nil, presenceKey: record.presenceKey)
    return record.appID
  }

  /// Takes up an app's program from the bytes of its file, and returns the app's id. Throws `malformed` when it is none.
  @discardableResult
  package mutating func decodeProgram(_ bytes: Data) throws(ProtocolFault) -> String {
    let install = try WireInstall.known(bytes)
    guard install.fault(BrokerLimits()) == nil else { throw .malformed }
    programs[install.appID] = install.program
    return install.appID
  }

  package mutating func decodeForgotten(_ bytes: Data) throws(ProtocolFault) {
    forgotten = try ForgottenApps(WireForgottenApps.known(bytes))
  }

  /// There is no file that says which apps were forgotten.
  package mutating func beginForgotten() { forgotten = .begun() }

  mutating func noteForgotten(_ appID: String) { forgotten.append(appID) }

  /// Whether both apps are known, and were activated for different users.
  func areOfDifferentUsers(_ one: String, _ other: String) -> Bool {
    guard let one = apps[one], let other = apps[other] else { return false }
    return !one.activationUser.utf8.elementsEqual(other.activationUser.utf8)
  }

  // MARK: Approval

  /// Whether an administrator approved this key for the app.
  package func isApproved(_ appID: String, _ publicKey: Data) -> Bool {
    guard let approved = programs[appID]?.keyFingerprint, !approved.isEmpty else { return false }
    return approved == KeyFingerprint.of(publicKey)
  }

  /// Throws `notAllowed` for the launcher's id, in any spelling, without an approved key: another one would keep the id from it.
  func requireApproved(launcher appID: String, _ publicKey: Data) throws(ProtocolViolation) {
    guard appID.lowercased() != ApplicationID.launcher.text || isApproved(appID, publicKey) else {
      throw ProtocolViolation(
        fault: .notAllowed, detail: "the launcher's key is approved first: dynamics launcher --install")
    }
  }

  /// Apps that nobody has approved: of an origin, and in all.
  func unapprovedCounts(_ origin: BrokerOrigin) -> (ofOrigin: Int, all: Int) {
    var (ofOrigin, all) = (0, 0)
    for (appID, app) in apps where !isApproved(appID, app.publicKey) {
      all += 1
      if app.origin == origin { ofOrigin += 1 }
    }
    return (ofOrigin, all)
  }

  /// Whether another app has this key, or an id that differs in capitals alone.
  func isLikeAnother(_ appID: String, _ publicKey: Data) -> Bool {
    let lowercased = appID.lowercased()
    return apps.contains { $0.value.publicKey == publicKey || $0.key.lowercased() == lowercased }
  }

  /// Name of the file of an app's record: the app id where a file system that does not distinguish capitals cannot mistake it for
  /// another id, else with its BLAKE2b hash.
  package static func fileName(_ appID: String) -> String {
    guard appID.utf8.contains(where: { (65...90).contains($0) }) else { return appID }
    let hash = Array(appID.utf8).withUnsafeBytes { KeyedHash.checksum($0, count: 32) }
    return String(appID.lowercased().prefix(180)) + "_" + Hexadecimal.text(hash)
  }

  /// Takes the rules from the bytes of their file. Throws `malformed` when one of them is no rule, or is there twice.
  package mutating func decodePolicy(_ bytes: Data) throws(ProtocolFault) {
    policy = try BrokerPolicy(rules: WireRules.known(bytes).rules)
  }
}

extension Message {
  /// Reads a message and keeps of it what this version knows. Throws `malformed`.
  static func known(_ bytes: Data) throws(ProtocolFault) -> Self {
    var options = BinaryDecodingOptions()
    options.discardUnknownFields = true
    do {
      return try Self(serializedBytes: bytes, options: options)
    } catch {
      throw .malformed
    }
  }

  /// Without what this version does not know, at any depth: for what is kept, or goes on to others.
  func known() throws(ProtocolFault) -> Self {
    let bytes: Data
    do {
      bytes = try serializedData()
    } catch {
      throw .malformed
    }
    return try Self.known(bytes)
  }

  /// As it is encoded.
  var encodedByteCount: Int { (try? serializedBytes() as [UInt8])?.count ?? Int.max }
}
