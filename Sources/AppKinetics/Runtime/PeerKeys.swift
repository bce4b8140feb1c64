import Foundation
import LocalTransport
import ServiceValues
import ServiceWire

/// The keys of other apps, which are pinned in the container (CHANNEL-PROTOCOL.md, "Another key").
final class PeerKeys {
  private unowned let core: Core
  private(set) var pins: PeerPins
  var watchers = Watchers<PeerKey>()

  init(_ core: Core, _ pins: PeerPins) {
    self.core = core
    self.pins = pins
  }

  func stop() { watchers.finish() }

  // MARK: Channels

  /// Whether the key of a channel is the trusted one, or the first of its app. Else the channel is
  /// closed, and the user is told of a key that changed.
  func mayUse(_ channel: PeerSession.Channel, _ application: ApplicationID) -> Bool {
    switch standing(of: channel, application) {
    case .trusted, .unknown: return true
    case .noRoom:
      channel.lane.close(.limitExceeded, detail: "keys of other apps")
      return false
    case .changed:
      channel.lane.close(.keyChanged)
      guard pins.note(newKey: channel.peerKey, of: application) else { return false }
      save(application)
      guard let key = pins.key(of: application) else { return false }
      core.runtime.logger.warning(
        "another key was named for an app; nothing is exchanged with it until the key is trusted",
        metadata: [
          "app": "\(application)", "trusted": "\(key.fingerprint ?? "none")",
          "new": "\(key.newFingerprint ?? "none")",
        ])
      watchers.yield(key)
      return false
    }
  }

  func standing(of channel: PeerSession.Channel, _ application: ApplicationID) -> PeerPins.Standing {
    pins.standing(of: channel.peerKey, for: application, isCalled: channel.isDialled)
  }

  /// Pins the key that a peer has proved, at the first meeting.
  func pin(_ channel: PeerSession.Channel, _ application: ApplicationID) {
    let date = core.runtime.date
    guard pins.take(channel.peerKey, of: application, isCalled: channel.isDialled, date) else { return }
    save(application)
  }

  private func save(_ application: ApplicationID) {
    let (container, logger) = (core.runtime.container, core.runtime.logger)
    core.runtime.workQueue.async { [pins] in
      do {
        try pins.write(application, in: container)
      } catch {
        logger.error(
          "the container does not keep an app's key: the next meeting with it is a first one again",
          metadata: ["app": "\(application)", "error": "\(error)"])
      }
    }
  }

  /// What the app reads of a channel that ended because a key changed, at this side or at the other.
  func error(of end: LaneEnd, _ application: ApplicationID) -> ServicesError {
    if end.side == .here, let key = pins.key(of: application) { return key.error }
    return ServicesError(
      .peerKeyChanged, detail: "\(application) trusts another key of this app than the one it has now")
  }

  // MARK: The user

  /// Takes over what the user has decided on an app, which the container keeps by now.
  func copy(_ application: ApplicationID, from changed: PeerPins) {
    pins.copy(application, from: changed)
    // The file may have what was known of the app before, if that was written meanwhile.
    save(application)
    core.peers[application]?.keyWasDecided()
  }
}

extension Runtime {
  func trust(_ application: ApplicationID, _ fingerprint: String) async throws {
    try await changePins(of: application) { [date] in try $0.trust(application, fingerprint, date) }
  }

  func forgetKey(of application: ApplicationID) async throws -> Bool {
    try await changePins(of: application) { $0.remove(application) }
  }

  /// Changes what is known of an app: first in the container, durably, then here.
  private func changePins<R: Sendable>(
    of application: ApplicationID, _ change: @escaping @Sendable (inout PeerPins) throws -> R
  ) async throws -> R {
    var pins = await result { $0.keys.pins }
    let result = try change(&pins)
    let changed = pins
    do {
      try await blocking { [container, workQueue] in
        // Behind what is being written of the app.
        try workQueue.sync { try changed.write(application, in: container) }
        try container.synchronize()
      }
    } catch {
      throw Self.servicesError(error)
    }
    await self.result { $0.keys.copy(application, from: changed) }
    return result
  }
}
