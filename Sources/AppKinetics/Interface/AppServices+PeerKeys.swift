import Foundation
import ServiceValues
import ServiceWire

/// Who the other apps are: the keys that were pinned when they were first met.
extension AppServices {
  /// The fingerprint of this app's own key, which users of other apps compare.
  public var keyFingerprint: String {
    runtime.performAndWait { KeyFingerprint.text(of: Data($0.identity.key.publicKey)) }
  }

  /// The keys of the apps that this one has met, by application id.
  public func peerKeys() async -> [PeerKey] { await runtime.result { $0.keys.pins.keys } }

  /// Apps for which another key was named than the one that is trusted, each time that happens with
  /// yet another key. Nothing is exchanged with such an app; messages in the outbox are held. A stream that nobody
  /// reads keeps the last 64; ``peerKeys()`` has all, also of earlier processes. Ends with ``stop()``.
  public var peerKeyChanges: AsyncStream<PeerKey> {
    AsyncStream(bufferingPolicy: .bufferingNewest(64)) { continuation in
      runtime.perform { $0.watch(\.keys.watchers, continuation) }
    }
  }

  /// Trusts the key with this fingerprint from now on: the new one, or once more the old one, which
  /// ends the warning. Messages that were held for the app go on. The change is durable when this
  /// returns. Blanks and capitals in a fingerprint do not count.
  ///
  /// Throws `peerKeyChanged` when the fingerprint is of neither key, `applicationNotFound` for an app
  /// that was never met, and the container's errors.
  public func trust(_ application: ApplicationID, fingerprint: String) async throws {
    try await runtime.trust(application, fingerprint)
  }

  /// Forgets an app's key: the next meeting with it is a first one. Returns whether a key was known.
  /// Throws the container's errors.
  @discardableResult
  public func forgetKey(of application: ApplicationID) async throws -> Bool {
    try await runtime.forgetKey(of: application)
  }
}
