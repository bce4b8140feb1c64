import Foundation
import LocalTransport
import SecureFiles
import ServiceValues

/// What an app's container keeps of its place among the apps: its private key, and the broker's authority that it trusts.
struct Identity: Sendable {
  let key: AppKey
  /// DER.
  let ownCertificate: Data
  /// The pinned certificate, DER; nil before the first enrolment.
  var authority: Data?

  static let directory = "/.opendynamics"
  private static let keyPath = "\(directory)/key"
  private static let authorityPath = "\(directory)/authority"

  /// Whether a path without links leads into the directory of the key, or to a folder around it.
  static func holdsPrivateKey(_ path: String) -> Bool {
    let (place, own) = (path.split(separator: "/"), directory.split(separator: "/"))
    return place.starts(with: own) || own.starts(with: place)
  }

  /// Makes the key when there is none. Throws the container's errors, and `certificateNotFound` for a key that cannot be read.
  init(in container: SecureContainer) throws {
    let files = container.files
    if let bytes = try Self.contents(Self.keyPath, in: files) {
      do {
        key = try AppKey(rawBytes: bytes)
      } catch {
        throw ServicesError(.certificateNotFound, detail: "\(Self.keyPath) in the container is no key")
      }
    } else {
      key = AppKey()
      try Self.write(key.rawBytes, to: Self.keyPath, in: container)
    }
    ownCertificate = try key.selfSignedCertificate()
    authority = try Self.contents(Self.authorityPath, in: files)
  }

  /// Trusts this authority from now on, unless another one is trusted already; returns which.
  static func pin(_ authority: Data, in container: SecureContainer) throws -> Data {
    if let pinned = try contents(authorityPath, in: container.files) { return pinned }
    try write(authority, to: authorityPath, in: container)
    return authority
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
