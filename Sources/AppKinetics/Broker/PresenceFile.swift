import CPosix
import ContainerStore
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

  private static let name = presenceFileName
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

  init(application: ApplicationID, activationUser: String, key: KeyPair, brokerKey: Data) {
    self.application = application
    self.activationUser = activationUser
    self.key = key
    self.brokerKey = brokerKey
  }

  /// Throws `certificateNotFound` when there is none, or it cannot be read.
  init(inContainerAt path: String) throws {
    guard let directory = try? OpenDirectory(path) else {
      throw ServicesError(.certificateNotFound, detail: "\(path) cannot be opened; check the path")
    }
    try self.init(in: directory, path: path + "/" + Self.name)
  }

  /// The path is for messages.
  fileprivate init(in directory: OpenDirectory, path: String = Self.name) throws {
    func unusable(_ reason: String) -> ServicesError {
      ServicesError(
        .certificateNotFound,
        detail: "\(path) \(reason); the app writes it when its container is open (dynamics app run)")
    }
    let file = cposix_open_at(directory.descriptor, Self.name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK, 0)
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
  fileprivate func write(in directory: OpenDirectory) throws {
    let stored = Stored(
      version: Self.version, application: application.text, user: activationUser,
      key: Hexadecimal.text(try key.kept), broker: Hexadecimal.text(brokerKey))
    let encoder = JSONEncoder()
    encoder.outputFormatting = [.sortedKeys]
    let bytes = Array(try encoder.encode(stored)) + [10]
    let temporary = Self.name + ".new"
    unlinkat(directory.descriptor, temporary, 0)
    let file = cposix_open_at(
      directory.descriptor, temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0o600)
    guard file >= 0 else { throw POSIXError(.init(rawValue: -file) ?? .EIO) }
    let isWritten = Foundation.write(file, bytes, bytes.count) == bytes.count
    close(file)
    guard isWritten, renameat(directory.descriptor, temporary, directory.descriptor, Self.name) == 0 else {
      unlinkat(directory.descriptor, temporary, 0)
      throw POSIXError(.EIO)
    }
  }
}

/// The presence key of an app whose container is open.
struct Presence {
  let key: KeyPair
  /// The contents of the file, or nil when the file does not have this key.
  private var kept: PresenceFile?
  private let directory: OpenDirectory

  /// Takes the key from the file when it is this app's, and draws one otherwise. Returns nil for an app that does not
  /// register, and without guarded memory: then the broker and the file keep the key that they have.
  init?(_ runtime: Runtime) {
    guard runtime.options.registers, let directory = runtime.container.store.directory else { return nil }
    self.directory = directory
    let kept = try? PresenceFile(in: directory)
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
    runtime.workQueue.async { [logger = runtime.logger, directory, store = runtime.container.store] in
      // The directory may be another container's by now.
      guard !store.isClosed else { return }
      do {
        try file.write(in: directory)
      } catch {
        logger.notice("the presence key cannot be kept", metadata: ["error": "\(error)"])
      }
    }
  }
}
