import Foundation
import LocalTransport
import SecureFiles
import ServiceValues
import SodiumPrimitives

/// The identity of an app, which its container keeps: its private key, and the public key of the broker that it trusts.
struct Identity: Sendable {
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
    if let kept = try Self.key(in: container) {
      key = kept
    } else {
      key = try KeyPair()
      try Self.write(key.kept, to: Self.keyPath, in: container)
    }
    brokerKey = try Self.contents(Self.brokerKeyPath, in: container.files)
  }

  /// The app's key; nil when none was made yet. Throws as ``init(in:)`` does.
  static func key(in container: SecureContainer) throws -> KeyPair? {
    guard let bytes = try contents(keyPath, in: container.files) else { return nil }
    guard let key = try KeyPair(kept: bytes) else {
      throw ServicesError(.certificateNotFound, detail: "\(keyPath) in the container is no key")
    }
    return key
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
