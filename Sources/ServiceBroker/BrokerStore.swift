import CPosix
import Dispatch
import Foundation
import LocalTransport
import Logging
import ServiceValues
import ServiceWire
import Synchronization
import UnixSockets

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

/// A broker's state directory: the authority, the administrator's key, and a file for each app and for the policy.
final class BrokerStore: Sendable {
  let directory: String
  let authority: CertificateAuthority
  let authorityKey: AppKey
  let administratorKey: AppKey
  let records: BrokerRecords
  private let lock: Descriptor
  private let logger: Logger
  private let syncs = DispatchQueue(label: "broker.sync")
  private let unsynced = Mutex<Set<String>>([])

  /// Of a record: a registration and what else there is, and more than any of them.
  private static let recordByteCountMax = 2 << 20
  private static let keyByteCountMax = 16 << 10

  /// Throws `ServiceBrokerError`, `SocketError` for a directory that is open to others, and errors of keys.
  init(_ directory: String, _ logger: Logger) throws {
    self.directory = directory
    self.logger = logger
    try StateFiles.makeDirectory(directory)
    try Self.checkThatItIsOurs(directory)
    lock = try Self.lock(directory)
    try StateFiles.makeDirectory(directory + "/apps")
    authority = try Self.authority(directory)
    authorityKey = try AppKey(rawBytes: authority.rawKey)
    administratorKey = try Self.key(directory + "/" + BrokerStore.administratorKeyName, directory)
    records = try Self.records(directory, authority, logger)
  }

  /// A directory of something else, a container for instance, is left as it is. Throws `noState` with the name of what is not a broker's.
  private static func checkThatItIsOurs(_ directory: String) throws {
    let known: Set = [
      "lock", "new", "apps", "damaged", "policy", "authority.key", authorityCertificateName,
      administratorKeyName,
    ]
    let names = try FileManager.default.contentsOfDirectory(atPath: directory)
    guard !names.contains("authority.key") else { return }
    for name in names.sorted()
    where !known.contains(name) && !known.contains(where: { name.hasPrefix($0 + ".") }) {
      throw ServiceBrokerError.noState(path: directory + "/" + name)
    }
  }

  static let authorityCertificateName = "authority.crt"
  static let administratorKeyName = "administrator.key"

  private static func lock(_ directory: String) throws -> Descriptor {
    let path = directory + "/lock"
    let number = cposix_open(path, O_RDWR | O_CREAT | O_NOFOLLOW, 0o600)
    try StateFiles.check(number, "open", path)
    let file = try Descriptor(adopting: number)
    let status = cposix_lock(number, 1, 0, 0)
    if status == -EAGAIN { throw ServiceBrokerError.stateInUse(path: directory) }
    try StateFiles.check(status, "lock", path)
    return file
  }

  deinit { _ = cposix_unlock(lock.number, 0, 0) }

  // MARK: Keys

  /// Made at the first start, and never again: without one of its files nobody could say whose leaves are right.
  private static func authority(_ directory: String) throws -> CertificateAuthority {
    let (keyPath, certificatePath) = (
      directory + "/authority.key", directory + "/" + authorityCertificateName
    )
    let key = try StateFiles.read(keyPath, byteCountMax: keyByteCountMax)
    let certificate = try StateFiles.read(certificatePath, byteCountMax: keyByteCountMax)
    switch (key, certificate) {
    case (let key?, let certificate?):
      guard let authority = try? CertificateAuthority(rawKey: key, certificate: certificate) else {
        throw ServiceBrokerError.stateDamaged(path: keyPath)
      }
      return authority
    case (nil, _?): throw ServiceBrokerError.stateDamaged(path: keyPath)
    // A key without its certificate: the first start was interrupted, and nobody has enrolled.
    case (_, nil):
      guard try FileManager.default.contentsOfDirectory(atPath: directory + "/apps").isEmpty else {
        throw ServiceBrokerError.stateDamaged(path: certificatePath)
      }
      let authority = try CertificateAuthority()
      try write(authority.rawKey, keyPath, directory)
      try write(authority.certificate, certificatePath, directory)
      return authority
    }
  }

  private static func key(_ path: String, _ directory: String) throws -> AppKey {
    guard let bytes = try StateFiles.read(path, byteCountMax: keyByteCountMax) else {
      let key = AppKey()
      try write(key.rawBytes, path, directory)
      return key
    }
    guard let key = try? AppKey(rawBytes: bytes) else { throw ServiceBrokerError.stateDamaged(path: path) }
    return key
  }

  private static func write(_ bytes: Data, _ path: String, _ directory: String) throws {
    try StateFiles.write(bytes, path, temporary: directory + "/new")
    try StateFiles.sync(path)
    try StateFiles.sync(directory)
  }

  // MARK: Records

  private static func records(
    _ directory: String, _ authority: CertificateAuthority, _ logger: Logger
  ) throws -> BrokerRecords {
    var records = BrokerRecords()
    let policyPath = directory + "/policy"
    if let bytes = try StateFiles.read(policyPath, byteCountMax: recordByteCountMax) {
      do {
        try records.decodePolicy(bytes)
      } catch {
        throw ServiceBrokerError.stateDamaged(path: policyPath)
      }
    }
    for name in try FileManager.default.contentsOfDirectory(atPath: directory + "/apps").sorted() {
      let path = directory + "/apps/" + name
      var read = records
      do {
        let bytes = try StateFiles.read(path, byteCountMax: recordByteCountMax) ?? Data()
        guard try fileName(read.decodeApp(bytes), authority) == name else { throw ProtocolFault.malformed }
        records = read
      } catch {
        // Set aside, so that it is not read again, and is there for whoever wants to know.
        try StateFiles.makeDirectory(directory + "/damaged")
        let aside = directory + "/damaged/" + name
        guard rename(path, aside) == 0 else {
          throw ServiceBrokerError.callFailed(operation: "rename", path: path, errno: errno)
        }
        logger.error("an app's record is damaged, and set aside", metadata: ["file": "\(aside)"])
      }
    }
    return records
  }

  /// The app id, as long as file systems that do not tell capitals apart cannot mistake it for another; else with its hash.
  private static func fileName(_ appID: String, _ authority: CertificateAuthority) -> String {
    guard appID.utf8.contains(where: { (65...90).contains($0) }) else { return appID }
    let hash = authority.fingerprint(of: Data(appID.utf8)).map { byte in
      (byte < 16 ? "0" : "") + String(byte, radix: 16)
    }
    return String(appID.lowercased().prefix(180)) + "_" + hash.joined()
  }

  /// What the records have of it is in its file when this returns, and on the disk soon.
  func save(_ part: BrokerRecords.Part, of records: BrokerRecords) throws {
    let path =
      switch part {
      case .app(let appID): directory + "/apps/" + Self.fileName(appID, authority)
      case .policy: directory + "/policy"
      }
    if let bytes = try records.encoded(part) {
      try StateFiles.write(bytes, path, temporary: directory + "/new")
    } else {
      try StateFiles.remove(path)
    }
    let folder = SocketDirectory.directory(of: path)
    let isScheduled = unsynced.withLock { unsynced in
      defer { unsynced.formUnion([path, folder]) }
      return !unsynced.isEmpty
    }
    if !isScheduled { syncs.async { self.syncAll() } }
  }

  private func syncAll() {
    let paths = unsynced.withLock { unsynced in
      defer { unsynced = [] }
      return unsynced
    }
    for path in paths.sorted().reversed() {
      do {
        try StateFiles.sync(path)
      } catch {
        logger.error("what is known of apps may not be on the disk", metadata: ["error": "\(error)"])
      }
    }
  }

  /// Everything that was saved is on the disk.
  func close() { syncs.sync { syncAll() } }
}
