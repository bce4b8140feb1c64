import Foundation
import LocalTransport
import ServiceValues
import ServiceWire

/// The keys of other apps, which are pinned in the container (CHANNEL-PROTOCOL.md, "Another key").
extension Runtime {
  // MARK: Channels

  /// Whether the key of a channel is the trusted one, or the first of its app. Else the channel is
  /// closed, and the user is told of a key that changed.
  func mayUse(_ channel: Peer.Channel, _ application: ApplicationID, _ core: inout Core) -> Bool {
    switch core.pins.standing(of: channel.peerKey, for: application, isCalled: channel.isDialled) {
    case .trusted, .unknown: return true
    case .noRoom:
      channel.lane.close(.limitExceeded, detail: "keys of other apps")
      return false
    case .changed:
      channel.lane.close(.keyChanged)
      guard core.pins.note(newKey: channel.peerKey, of: application) else { return false }
      save(application, core)
      guard let key = core.pins.key(of: application) else { return false }
      logger.warning(
        "another key was named for an app; nothing is exchanged with it until the key is trusted",
        metadata: [
          "app": "\(application)", "trusted": "\(key.fingerprint ?? "none")",
          "new": "\(key.newFingerprint ?? "none")",
        ])
      for watcher in core.keyWatchers.values { watcher.yield(key) }
      return false
    }
  }

  /// Pins the key that a peer has proved, at the first meeting.
  func pin(_ channel: Peer.Channel, _ application: ApplicationID, _ core: inout Core) {
    guard core.pins.take(channel.peerKey, of: application, isCalled: channel.isDialled, Date()) else {
      return
    }
    save(application, core)
  }

  private func save(_ application: ApplicationID, _ core: Core) {
    let pins = core.pins
    workQueue.async { [container, logger] in
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
  func keyError(of end: LaneEnd, _ application: ApplicationID, _ core: Core) -> ServicesError {
    if end.side == .here, let key = core.pins.key(of: application) { return key.error }
    return ServicesError(
      .peerKeyChanged, detail: "\(application) trusts another key of this app than the one it has now")
  }

  // MARK: The user decides

  func trust(_ application: ApplicationID, _ fingerprint: String) async throws {
    try await changePins(of: application) { try $0.trust(application, fingerprint) }
  }

  func forgetKey(of application: ApplicationID) async throws -> Bool {
    try await changePins(of: application) { $0.remove(application) }
  }

  /// Changes what is known of an app: first in the container, durably, then here.
  private func changePins<R: Sendable>(
    of application: ApplicationID, _ change: @escaping @Sendable (inout PeerPins) throws -> R
  ) async throws -> R {
    var pins = await core.result { $0.pins }
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
    await core.result { core in
      core.pins.copy(application, from: changed)
      guard let peer = core.peers[application] else { return }
      for channel in peer.channels.values
      where core.pins.standing(of: channel.peerKey, for: application, isCalled: channel.isDialled) == .changed
      {
        channel.lane.close(.keyChanged)
      }
      core.peers[application]?.retryAt = nil
      core.peers[application]?.retryPause = 0
      core.wake(at: Self.now)
    }
    return result
  }

  func watchKeys(_ continuation: AsyncStream<PeerKey>.Continuation) {
    core.perform { core in
      guard core.life != .stopped else { return continuation.finish() }
      core.lastWatcher += 1
      let watcher = core.lastWatcher
      core.keyWatchers[watcher] = continuation
      continuation.onTermination = { _ in self.core.perform { $0.keyWatchers[watcher] = nil } }
    }
  }
}
