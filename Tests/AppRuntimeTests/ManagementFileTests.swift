import AppRuntime
import Foundation
import ServiceValues
import SodiumPrimitives
import TestSupport
import Testing

/// What an owner may write, and what is refused with its path.
struct ManagementFileTests {
  /// Cheap to verify; the code is `4711`, hashed by Python's nacl.pwhash.argon2id.str.
  private static let code =
    "$argon2id$v=19$m=8,t=1,p=1$QRYwn4X3C/QdslKgXZxRgQ$SAxaFKUZuEwwVnWXrISMYtUXBt1FtegHGMUFm7BW6Dg"

  private func file(_ members: String) throws -> ManagementFile {
    try ManagementFile(Data("{\(members)}".utf8))
  }

  @Test func readsAllMembers() throws {
    let id = Identifier.random()
    let file = try file(
      """
      "version": 1, "serial": 7, "blocked": {"title": "Blocked", "text": "Call."}, "locked": 6,
      "unlockCode": "\(Self.code)", "entitlements": {"com.example.notes": ["1.0.0.0"], "com.example.none": []},
      "configuration": {"config": "a", "extraInfo": "{}", "userID": "u", "userPrincipalName": "u@example.com",
        "preventDataLeakageOut": true, "allowWearable": false, "communicationProtocols": {"TLSv1_2": true},
        "servers": [{"host": "a.example.com", "port": 443}, {"host": "b.example.com", "port": 8443, "priority": 2}]},
      "appPolicy": {"any": [1, 2.5, null]},
      "passwordRules": {"minimumLength": 8, "requiresDigit": true, "requiresLetterCases": true, "requiresOther": true,
        "maximumDays": 90, "history": 5, "attempts": 10, "idleSeconds": 600},
      "wipe": "\(id.hex)"
      """)
    #expect(file.serial == 7 && file.lockSerial == 6 && file.wipe == id)
    #expect(file.block == Notice(title: "Blocked", text: "Call."))
    #expect(try file.unlockCode?.isHash(of: SecretBytes(utf8: "4711")) == true)
    #expect(try file.unlockCode?.isHash(of: SecretBytes(utf8: "4712")) == false)
    #expect(file.configuration.flags == [.preventDataLeakageOut: true, .allowWearable: false])
    #expect(file.configuration.servers.map(\.priority) == [1, 2])
    #expect(file.configuration.communicationProtocols == ["TLSv1_2": true])
    #expect(file.appPolicy == .object(["any": .array([.integer(1), .number(2.5), .null])]))
    #expect(file.passwordRules.attempts == 10 && file.passwordRules.idleSeconds == 600)
    let version = try ServiceVersion("1.0.0.0")
    #expect(file.entitlement("com.example.notes", version) == .entitled)
    #expect(try file.entitlement("com.example.notes", ServiceVersion("1.0.0.1")) == .versionNotEntitled)
    #expect(file.entitlement("com.example.none", version) == .notEntitled)
    #expect(file.entitlement("com.example.other", version) == .notEntitled)
  }

  @Test func aFileThatDecidesNothingEntitles() throws {
    let file = try file(#""version": 1, "serial": 1"#)
    #expect(file.block == nil && file.lockSerial == nil && file.wipe == nil && file.unlockCode == nil)
    #expect(try file.entitlement("com.example.notes", ServiceVersion("1.0.0.0")) == .entitled)
    #expect(file.passwordRules == PasswordRules() && file.configuration == AppConfiguration())
  }

  /// One below and one above each limit, misspelt members, and values of other kinds.
  @Test(arguments: [
    (#""serial": 1"#, "management.version"),
    (#""version": 2, "serial": 1, "new": 3"#, "management.version"),
    (#""version": 1"#, "management.serial"),
    (#""version": 1, "serial": 0"#, "management.serial"),
    (#""version": 1, "serial": 9007199254740992"#, "management.serial"),
    (#""version": 1, "serial": 1, "lockd": 1"#, "management.lockd"),
    (#""version": 1, "serial": 1, "locked": true"#, "management.locked"),
    (#""version": 1, "serial": 1, "locked": 2, "unlockCode": "CODE""#, "management.locked"),
    (#""version": 1, "serial": 1, "locked": 1"#, "management.unlockCode"),
    (#""version": 1, "serial": 1, "unlockCode": "4711""#, "management.unlockCode"),
    (#""version": 1, "serial": 1, "wipe": true"#, "management.wipe"),
    (#""version": 1, "serial": 1, "wipe": "all""#, "management.wipe"),
    (#""version": 1, "serial": 1, "blocked": true"#, "management.blocked"),
    (#""version": 1, "serial": 1, "blocked": {"titel": ""}"#, "management.blocked.titel"),
    (#""version": 1, "serial": 1, "entitlements": []"#, "management.entitlements"),
    (#""version": 1, "serial": 1, "entitlements": {"a": ["1.x"]}"#, "management.entitlements.a[0]"),
    (#""version": 1, "serial": 1, "configuration": {"mode": 1}"#, "management.configuration.mode"),
    (
      #""version": 1, "serial": 1, "configuration": {"servers": [{"host": "a"}]}"#,
      "management.configuration.servers[0].port"
    ),
    (
      #""version": 1, "serial": 1, "configuration": {"servers": [{"host": "a", "port": 0}]}"#,
      "management.configuration.servers[0]"
    ),
    (
      #""version": 1, "serial": 1, "passwordRules": {"minimumLength": 0}"#,
      "management.passwordRules.minimumLength"
    ),
    (
      #""version": 1, "serial": 1, "passwordRules": {"minimumLength": 1025}"#,
      "management.passwordRules.minimumLength"
    ),
    (#""version": 1, "serial": 1, "passwordRules": {"attempts": 1001}"#, "management.passwordRules.attempts"),
    (#""version": 1, "serial": 1, "passwordRules": {"history": 25}"#, "management.passwordRules.history"),
    (
      #""version": 1, "serial": 1, "passwordRules": {"maximumDays": 3651}"#,
      "management.passwordRules.maximumDays"
    ),
    (
      #""version": 1, "serial": 1, "passwordRules": {"idleSeconds": 604801}"#,
      "management.passwordRules.idleSeconds"
    ),
    (#""version": 1, "serial": 1, "serial": 2"#, "management.serial"),
    (#""version": 1, "serial": 1} {"#, "management"),
  ]) func refuses(members: String, path: String) throws {
    let members = members.replacing("CODE", with: Self.code)
    let error = try #require(throws: AppRuntimeError.self) { try file(members) }
    #expect(error.code == .managementRefused && error.path == path, "\(error)")
    #expect(error.detail?.isEmpty == false)
  }

  @Test func takesALongNoticeAndALargeFileToTheByte() throws {
    let title = String(repeating: "t", count: Notice.byteCountMax)
    #expect(try file(#""version": 1, "serial": 1, "blocked": {"title": "\#(title)"}"#).block?.title == title)
    #expect(throws: AppRuntimeError.self) {
      try file(#""version": 1, "serial": 1, "blocked": {"title": "\#(title)t"}"#)
    }
    let head = #"{"version": 1, "serial": 1, "appPolicy": ""#
    let text = head + String(repeating: "x", count: ManagementFile.byteCountMax - head.utf8.count - 2) + "\"}"
    #expect(text.utf8.count == ManagementFile.byteCountMax)
    #expect(try ManagementFile(Data(text.utf8)).serial == 1)
    #expect(throws: AppRuntimeError.self) { try ManagementFile(Data((text + " ").utf8)) }
  }

  // MARK: The unlock code

  @Test func hashesACodeThatItVerifies() throws {
    let parameters = PasswordHash.Parameters(passes: 1, memoryKiB: 8)
    let made = try SecretHash(hashing: SecretBytes(utf8: "4711"), parameters: parameters)
    let read = try #require(SecretHash(made.text))
    #expect(read == made)
    #expect(try read.isHash(of: SecretBytes(utf8: "4711")))
    #expect(try !read.isHash(of: SecretBytes(utf8: "")))
  }

  /// Costs that whoever wrote the file may not decide, and texts that are nearly hashes.
  @Test(arguments: [
    ("m=8,t=1", "m=1048577,t=1"), ("m=8,t=1", "m=8,t=17"), ("m=8,t=1", "m=7,t=1"), ("m=8,t=1", "m=8,t=0"),
    ("m=8,t=1", "m=99999999999,t=1"), ("m=8,t=1", "m=-8,t=1"), ("m=8,t=1", "m=+8,t=1"), ("m=8,t=1", "m=8"),
    ("p=1", "p=2"), ("argon2id", "argon2i"), ("v=19", "v=16"), ("$QR", "$QR="), ("$QR", "$Q"), ("$SA", "$"),
    ("$SA", "$SA$"), ("$argon", "argon"),
  ]) func refusesTheHash(old: String, new: String) throws {
    #expect(SecretHash(Self.code) != nil)
    let changed = Self.code.replacing(old, with: new)
    #expect(changed != Self.code && SecretHash(changed) == nil)
  }
}
