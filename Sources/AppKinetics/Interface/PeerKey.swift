public import Foundation
public import SecureFiles
import ServiceValues
import ServiceWire

/// The key of another app, as this app's container keeps it from their first meeting on
/// (CHANNEL-PROTOCOL.md, "Another key").
///
/// The broker names an app's key at each introduction. Where it names another one than this, nothing
/// is exchanged: whoever holds the new key may be the app with a new container, or somebody in its
/// place. The user compares fingerprints and decides.
public struct PeerKey: Sendable, Hashable {
  /// The app that the key belongs to.
  public let application: ApplicationID
  /// Of the key that is trusted, as hexadecimal digits in groups of four. Nil for a record of the
  /// container that is damaged: then no key is trusted.
  public let fingerprint: String?
  /// Of another key that was named for the app last and is not trusted; nil when there is none.
  public let newFingerprint: String?
  /// When the trusted key was taken.
  public let date: Date

  /// The keys that a container knows, by application id. Throws the container's errors.
  public static func all(in container: SecureContainer) throws -> [PeerKey] {
    try PeerPins(in: container).keys
  }

  /// Trusts the key with this fingerprint from now on: the new one, or once more the old one, which
  /// ends the warning. The change is durable when this returns. Blanks and capitals in a fingerprint
  /// do not count.
  ///
  /// For a container that no ``AppServices`` uses; they have a method of that name. Throws
  /// `peerKeyChanged` when the fingerprint is of neither key, `applicationNotFound` for an app that was
  /// never met, and the container's errors.
  public static func trust(
    _ application: ApplicationID, fingerprint: String, in container: SecureContainer
  ) throws {
    var pins = try PeerPins(in: container)
    try pins.trust(application, fingerprint, Date())
    try pins.write(application, in: container)
    try container.synchronize()
  }

  /// Forgets an app's key: the next meeting with it is a first one. For a container that no
  /// ``AppServices`` uses. Returns whether a key was known. Throws the container's errors.
  @discardableResult
  public static func forget(_ application: ApplicationID, in container: SecureContainer) throws -> Bool {
    var pins = try PeerPins(in: container)
    guard pins.remove(application) else { return false }
    try pins.write(application, in: container)
    try container.synchronize()
    return true
  }

  /// The fingerprint of the container's own key, which others compare; nil when no app has used the
  /// container yet. Throws the container's errors.
  public static func ownFingerprint(in container: SecureContainer) throws -> String? {
    try Identity.key(in: container).map { KeyFingerprint.text(of: Data($0.publicKey)) }
  }
}
