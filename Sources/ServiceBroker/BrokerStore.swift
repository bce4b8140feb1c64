import CPosix
import Foundation
import LocalTransport
import Logging
import ServiceValues
import ServiceWire
import SodiumPrimitives
import UnixSockets

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

/// A broker's state directory: its key, the administrator's key, and a file for each app, for each program and for the policy.
final class BrokerStore: Sendable {
  let directory: String
  let key: KeyPair
  let administratorKey: KeyPair
  let records: BrokerRecords
  private let lock: Descriptor

  /// Of a record: a registration and what else there is, and more than any of them.
  private static let recordByteCountMax = 2 << 20
  private static let keyByteCountMax = 16 << 10

  /// Throws `ServiceBrokerError`, `SocketError` for a directory that is open to others, and errors of keys.
  init(_ directory: String, _ logger: Logger) throws {
    self.directory = directory
    try StateFiles.makeDirectory(directory)
    try Self.checkThatItIsOurs(directory)
    lock = try Self.lock(directory)
    try StateFiles.makeDirectory(directory + "/apps")
    try StateFiles.makeDirectory(directory + "/programs")
    key = try Self.brokerKey(directory)
    administratorKey = try Self.key(directory + "/" + BrokerStore.administratorKeyName, directory)
    var records = try Self.records(directory, logger)
    let hasForgotten = records.forgotten.count > 0
    // It begins with a number that has to stay.
    if !hasForgotten { records.beginForgotten() }
    self.records = records
    if !hasForgotten { try save(.forgotten, of: records) }
  }

  /// A directory of something else, a container for instance, is left as it is. Throws `noState` with the name of what is not a broker's.
  private static func checkThatItIsOurs(_ directory: String) throws {
    let known: Set = [
      "lock", "new", "apps", "programs", "policy", "forgotten", keyName, administratorKeyName,
    ]
    let names = try FileManager.default.contentsOfDirectory(atPath: directory)
    guard !names.contains(keyName) else { return }
    for name in names.sorted()
    where !known.contains(name) && !known.contains(where: { name.hasPrefix($0 + ".") }) {
      throw ServiceBrokerError.noState(path: directory + "/" + name)
    }
  }

  static let keyName = "broker.key"
  static let administratorKeyName = "administrator.key"

  private static func lock(_ directory: String) throws -> Descriptor {
    let path = directory + "/lock"
    let number = cposix_open(path, O_RDWR | O_CREAT | O_NOFOLLOW, 0o600)
    try StateFiles.check(number, "open", path)
    let file = try Descriptor(adopting: number)
    var patience = Patience()
    var status = cposix_lock(number, 1, 0, 0)
    while status == -EAGAIN, patience.wait() { status = cposix_lock(number, 1, 0, 0) }
    if status == -EAGAIN {
      var text = [UInt8](repeating: 0, count: 20)
      let count = max(0, pread(number, &text, text.count, 0))
      let process = Int32(String(decoding: text[..<count], as: UTF8.self))
      throw ServiceBrokerError.stateInUse(path: directory, process: process)
    }
    try StateFiles.check(status, "lock", path)
    // A courtesy, for which there may be no room: whose socket was removed can be found.
    let text = Array(String(getpid()).utf8)
    if ftruncate(number, 0) == 0 { _ = pwrite(number, text, text.count, 0) }
    return file
  }

  deinit { _ = cposix_unlock(lock.number, 0, 0) }

  // MARK: Keys

  /// Made at the first start, and never again: with another one no app that has enrolled would trust the broker.
  private static func brokerKey(_ directory: String) throws -> KeyPair {
    try key(
      directory + "/" + keyName, directory,
      mayBeMade: FileManager.default.contentsOfDirectory(atPath: directory + "/apps").isEmpty)
  }

  /// The key of a file, or a new one when there is no file and one may be made.
  private static func key(
    _ path: String, _ directory: String, mayBeMade: @autoclosure () throws -> Bool = true
  ) throws -> KeyPair {
    guard let bytes = try StateFiles.read(path, byteCountMax: keyByteCountMax) else {
      guard try mayBeMade() else { throw ServiceBrokerError.stateDamaged(path: path) }
      let key = try KeyPair()
      try write(try key.kept, path, directory)
      return key
    }
    guard let key = try KeyPair(kept: bytes) else { throw ServiceBrokerError.stateDamaged(path: path) }
    return key
  }

  private static func write(_ bytes: Data, _ path: String, _ directory: String) throws {
    try StateFiles.write(bytes, path, temporary: directory + "/new")
  }

  // MARK: Records

  /// A file that is cut, empty or changed denies what it was about, and stays where it is for whoever wants to restore it.
  private static func records(
    _ directory: String, _ logger: Logger
  ) throws -> BrokerRecords {
    var records = BrokerRecords()
    let policyPath = directory + "/policy"
    do {
      if let bytes = try message(policyPath) { try records.decodePolicy(bytes) }
    } catch {
      records.policy = .damaged
      logger.critical(
        "the policy is damaged, and everything is denied; restore the file, or remove it to have no rules, and start anew",
        metadata: ["file": "\(policyPath)", "error": "\(error)"])
    }
    let forgottenPath = directory + "/forgotten"
    do {
      if let bytes = try message(forgottenPath) { try records.decodeForgotten(bytes) }
    } catch {
      // Every app that comes back ends its channels.
      logger.error(
        "which apps were forgotten cannot be read",
        metadata: ["file": "\(forgottenPath)", "error": "\(error)"])
    }
    let apps = directory + "/apps"
    for (name, error) in try damaged(in: apps, into: &records, { try $0.decodeApp($1) }) {
      records.damagedApps.insert(name)
      logger.error(
        "an app's record is damaged, and its id refused; restore the file, or forget the app",
        metadata: ["file": "\(apps)/\(name)", "error": "\(error)"])
    }
    let programs = directory + "/programs"
    for (name, error) in try damaged(in: programs, into: &records, { try $0.decodeProgram($1) }) {
      records.damagedPrograms.insert(name)
      logger.error(
        "an app's program is damaged, and not started; install or uninstall it, or restore the file",
        metadata: ["file": "\(programs)/\(name)", "error": "\(error)"])
    }
    return records
  }

  /// Decodes every file of a folder into the records. Returns the name and error of each that is damaged, or that is not named for the
  /// app that it is about.
  private static func damaged(
    in folder: String, into records: inout BrokerRecords,
    _ decode: (inout BrokerRecords, Data) throws -> String
  ) throws -> [(name: String, error: any Error)] {
    var damaged: [(name: String, error: any Error)] = []
    for name in try FileManager.default.contentsOfDirectory(atPath: folder).sorted() {
      do {
        let bytes = try message(folder + "/" + name) ?? Data()
        var one = BrokerRecords()
        guard try BrokerRecords.fileName(decode(&one, bytes)) == name else { throw ProtocolFault.malformed }
        _ = try decode(&records, bytes)
      } catch {
        damaged.append((name, error))
      }
    }
    return damaged
  }

  private static let hashByteCount = 32

  /// The message of a file, without the hash before it; nil when there is no such file. Throws `malformed` when they do not agree.
  private static func message(_ path: String) throws -> Data? {
    guard let bytes = try StateFiles.read(path, byteCountMax: recordByteCountMax) else { return nil }
    let message = Data(bytes.dropFirst(hashByteCount))
    guard bytes.count >= hashByteCount, hash(message) == bytes.prefix(hashByteCount)
    else {
      throw ProtocolFault.malformed
    }
    return message
  }

  private static func hash(_ bytes: Data) -> Data {
    Data(bytes.withUnsafeBytes { KeyedHash.checksum($0, count: hashByteCount) })
  }

  /// What the records have of it is on the disk when this returns.
  func save(_ part: BrokerRecords.Part, of records: BrokerRecords) throws {
    let path =
      switch part {
      case .app(let appID): directory + "/apps/" + BrokerRecords.fileName(appID)
      case .program(let appID): directory + "/programs/" + BrokerRecords.fileName(appID)
      case .policy: directory + "/policy"
      case .forgotten: directory + "/forgotten"
      }
    guard let bytes = try records.encoded(part) else { return try StateFiles.remove(path) }
    try StateFiles.write(Self.hash(bytes) + bytes, path, temporary: directory + "/new")
  }
}
