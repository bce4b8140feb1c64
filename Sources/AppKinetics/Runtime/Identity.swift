import ContainerStore
import Foundation
import SecureFiles
import ServiceValues
import SodiumPrimitives

/// The identity of an app, which its container keeps: its private key, and the public key of the broker that it trusts.
struct Identity: Sendable {
  /// The memory of the private key alone, which goes when the services stop, and when the container is sealed.
  let pool = KeyPool()
  let key: KeyPair
  /// The broker's public key; nil before the first enrolment.
  var brokerKey: Data?

  static let directory = "/.opendynamics"
  private static let keyPath = "\(directory)/key"
  private static let brokerKeyPath = "\(directory)/broker"

  /// Whether a path without links leads into the directory of the key, or to a folder around it.
  static func holdsPrivateKey(_ path: String) -> Bool {
    let (place, own) = (path.split(separator: "/"), directory.split(separator: "/"))
    return place.starts(with: own) || own.starts(with: place)
  }

  /// Makes the key when there is none. Throws the container's errors, and `certificateNotFound` for a key that cannot be read.
  init(in container: SecureContainer) throws {
    if let kept = try Self.key(in: container, pool) {
      key = kept
    } else {
      key = try KeyPair(in: pool)
      try Self.write(key, in: container.store)
    }
    container.store.addDependent(pool)
    brokerKey = try Self.contents(Self.brokerKeyPath, in: container.files)
  }

  /// The app's key; nil when none was made yet. Throws as ``init(in:)`` does.
  static func key(in container: SecureContainer, _ pool: KeyPool = .shared) throws -> KeyPair? {
    guard container.files.fileExists(atPath: keyPath) else { return nil }
    let file = try container.store.openFile(keyPath, .read)
    defer {
      try? file.close()
      container.store.wipeSpareMemory()
    }
    // One byte more than a key has, in memory that is wiped.
    var bytes = try SecretBytes(count: KeyPair.byteCount + 1)
    let byteCount = try bytes.withUnsafeMutableBytes { try file.read(at: 0, into: $0) }
    guard byteCount == KeyPair.byteCount else {
      throw ServicesError(.certificateNotFound, detail: "\(keyPath) in the container is no key")
    }
    return try bytes.withUnsafeBytes { try KeyPair(copying: $0.prefix(byteCount), in: pool) }
  }

  /// Writes the private key, of which no copy is left in ordinary memory once it is stored.
  private static func write(_ key: KeyPair, in store: Container) throws {
    try store.createDirectory(directory, withIntermediateDirectories: true)
    // A name that is there has a whole key behind it.
    let temporary = keyPath + ".new"
    defer { store.wipeSpareMemory() }
    let file = try store.openFile(temporary, .write, create: true, truncate: true)
    var bytes = try SecretBytes(count: KeyPair.byteCount)
    try key.withPrivateKey { key in bytes.withUnsafeMutableBytes { $0.copyMemory(from: key) } }
    try bytes.withUnsafeBytes { try file.write($0, at: 0) }
    try file.close()
    try store.move(temporary, to: keyPath)
    try store.synchronize()
  }

  /// Trusts the broker of this key from now on, unless another one is trusted already; returns the key that is trusted.
  static func pin(_ brokerKey: Data, in container: SecureContainer) throws -> Data {
    if let pinned = try contents(brokerKeyPath, in: container.files) { return pinned }
    try write(brokerKey, to: brokerKeyPath, in: container)
    return brokerKey
  }

  private static func contents(_ path: String, in files: SecureFileManager) throws -> Data? {
    files.fileExists(atPath: path) ? try files.data(atPath: path) : nil
  }

  private static func write(_ bytes: Data, to path: String, in container: SecureContainer) throws {
    try container.files.createDirectory(atPath: directory, withIntermediateDirectories: true)
    try container.files.write(bytes, toPath: path)
    try container.synchronize()
  }
}
