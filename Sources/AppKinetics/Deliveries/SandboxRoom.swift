import SodiumPrimitives

/// The room on the disk for messages of one other app, when it is in a sandbox (``SandboxDisk``).
final class SandboxRoom {
  private unowned let peer: PeerSession
  /// Calls that wait until the bytes of the sandbox are counted.
  private var waiting: [() -> Void] = []

  init(_ peer: PeerSession) { self.peer = peer }

  private var runtime: Runtime { peer.runtime }

  /// Goes on at once, or when the bytes of the sandbox are counted.
  func whenCounted(_ body: @escaping () -> Void) {
    let sandbox = peer.sandbox
    guard sandbox != 0 else { return body() }
    if peer.core.disk.beginCounting(sandbox, now: runtime.now) { count(sandbox) }
    if peer.core.disk.isCounted(sandbox) { return body() }
    waiting.append(body)
  }

  private func count(_ sandbox: UInt64) {
    runtime.fileQueue.async { [runtime, senders = peer.core.disk.applications(of: sandbox)] in
      let byteCount = try? runtime.container.store.storedByteCount(of: senders)
      runtime.perform { core in
        core.disk.endCounting(byteCount, sandbox, now: runtime.now)
        for peer in core.peers.values where peer.sandbox == sandbox { peer.inbox.room.goOn() }
      }
    }
  }

  /// The bytes were counted, or the app is in another sandbox.
  func goOn() {
    let bodies = waiting
    waiting = []
    for body in bodies { body() }
  }

  /// False: its sandbox would have more than half.
  func take(_ room: Room, for delivery: IncomingDelivery) -> Bool {
    guard peer.sandbox != 0 else { return true }
    guard let promise = peer.core.disk.promise(room.needed, peer.sandbox, free: room.free) else {
      return false
    }
    delivery.setPromise(promise)
    return true
  }

  /// Unfinished messages of the sandbox's apps give way to another message of them.
  func discardIdle(for id: Identifier, _ room: Room) {
    let sandbox = peer.sandbox
    guard sandbox != 0 else { return }
    runtime.fileQueue.async { [runtime, senders = peer.core.disk.applications(of: sandbox)] in
      try? runtime.container.store.discardIdleArrivals(toFree: room.needed, of: senders, keeping: id)
      runtime.perform { $0.disk.countSoon(sandbox) }
    }
  }
}
