import CPosix
import Foundation
import LocalTransport
import ServiceValues
import SodiumPrimitives

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

/// The file `presence.json` in a container's directory holds what a process of the app needs to be present while the
/// container is locked. It is in the clear, and only the system's user can read it (BROKER-PROTOCOL.md, "Keys").
///
/// A process that reads it can be present as this app, locked, and learns which apps want something of it.
struct PresenceFile {
  let application: ApplicationID
  let activationUser: String
  let key: KeyPair
  /// The broker that the container trusts.
  let brokerKey: Data

  private static let name = "presence.json"
  private static let version = 1
  /// Ids and users are shorter.
  private static let byteCountMax = 8 << 10

  private struct Stored: Codable, Equatable {
    var version: Int
    var application: String
    var user: String
    /// 64 hexadecimal digits each: a private and a public key.
    var key: String
    var broker: String
  }

  private static func path(_ directory: String) -> String { directory + "/" + name }

  init(application: ApplicationID, activationUser: String, key: KeyPair, brokerKey: Data) {
    self.application = application
    self.activationUser = activationUser
    self.key = key
    self.brokerKey = brokerKey
  }

  /// Throws `certificateNotFound` when there is none, or it cannot be read.
  init(inContainerAt directory: String) throws {
    let path = Self.path(directory)
    func unusable(_ reason: String) -> ServicesError {
      ServicesError(
        .certificateNotFound,
        detail: "\(path) \(reason); the app writes it when its container is open (dynamics app run)")
    }
    let file = cposix_open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK, 0)
    guard file >= 0 else { throw unusable("cannot be opened: \(String(cString: strerror(-file)))") }
    defer { close(file) }
    // The file may have come with a container from somebody else, who would know the key that this app goes on using.
    var status = stat()
    guard fstat(file, &status) == 0, status.st_mode & S_IFMT == S_IFREG, status.st_uid == geteuid(),
      status.st_mode & 0o077 == 0
    else { throw unusable("is no file that this user alone can read") }
    var bytes = [UInt8](repeating: 0, count: Self.byteCountMax)
    let count = pread(file, &bytes, bytes.count, 0)
    guard count > 0, let stored = try? JSONDecoder().decode(Stored.self, from: Data(bytes[..<count])),
      stored.version == Self.version, let application = try? ApplicationID(stored.application),
      let kept = Hexadecimal.bytes(stored.key.utf8), let key = try KeyPair(kept: Data(kept)),
      let broker = Hexadecimal.bytes(stored.broker.utf8), broker.count == KeyPair.byteCount
    else { throw unusable("is damaged") }
    self.init(
      application: application, activationUser: stored.user, key: key, brokerKey: Data(broker))
  }

  /// Replaces the file as a whole. It is written again when the app enrols, so it need not be durable.
  func write(inContainerAt directory: String) throws {
    let stored = Stored(
      version: Self.version, application: application.text, user: activationUser,
      key: Hexadecimal.text(key.kept), broker: Hexadecimal.text(brokerKey))
    let encoder = JSONEncoder()
    encoder.outputFormatting = [.sortedKeys]
    let bytes = Array(try encoder.encode(stored)) + [10]
    let path = Self.path(directory)
    let temporary = path + ".new"
    unlink(temporary)
    let file = cposix_open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0o600)
    guard file >= 0 else { throw POSIXError(.init(rawValue: -file) ?? .EIO) }
    let isWritten = Foundation.write(file, bytes, bytes.count) == bytes.count
    close(file)
    guard isWritten, rename(temporary, path) == 0 else {
      unlink(temporary)
      throw POSIXError(.EIO)
    }
  }
}

/// The presence key of an app whose container is open.
struct Presence {
  let key: KeyPair
  /// The contents of the file, or nil when the file does not have this key.
  private var kept: PresenceFile?
  private let directory: String

  /// Takes the key from the file when it is this app's, and draws one otherwise. Returns nil for an app that does not
  /// register, and without guarded memory: then the broker and the file keep the key that they have.
  init?(_ runtime: Runtime) {
    guard runtime.options.registers else { return nil }
    // As it is now, whatever becomes of the process's own directory.
    directory = URL(fileURLWithPath: runtime.container.store.directory).path
    let kept = try? PresenceFile(inContainerAt: directory)
    let isOwn = kept?.application == runtime.application.id
    guard let key = isOwn ? kept?.key : try? KeyPair() else { return nil }
    self.key = key
    self.kept = isOwn ? kept : nil
  }

  /// Writes the file for the key that the broker has by now, unless it is there.
  mutating func keep(_ runtime: Runtime, _ brokerKey: Data) {
    let user = runtime.application.activationUser
    if let kept, kept.activationUser == user, kept.brokerKey == brokerKey { return }
    let file = PresenceFile(
      application: runtime.application.id, activationUser: user, key: key, brokerKey: brokerKey)
    kept = file
    runtime.workQueue.async { [logger = runtime.logger, directory] in
      do {
        try file.write(inContainerAt: directory)
      } catch {
        logger.notice("the presence key cannot be kept", metadata: ["error": "\(error)"])
      }
    }
  }
}
