import ServiceWire

/// Ends of connections: to the broker, for a runtime that seals or wipes the app's container, and to other apps, for a test.
extension AppServices {
  /// Does what ``hold()`` does, and waits for nothing.
  package func beginHolding() { runtime.hold {} }

  /// Returns when the presence key is in its file, without which nothing stands in for the app. For services that have started.
  package func presenceKeyIsKept() async {
    await withCheckedContinuation { continuation in runtime.workQueue.async { continuation.resume() } }
  }

  /// Gives the app's connection up to the next process that stands in for the app, as ``LockedApp`` does: callers that wait, and
  /// the front, pass on to it. For services that were held (``hold()``). Returns when the broker has answered, or cannot, after two
  /// seconds at most; then the app is locked for others, until ``stop()``.
  package func giveWay() async {
    let (answers, answer) = AsyncStream.makeStream(of: Void.self)
    let timer = runtime.options.clock.makeTimer { answer.finish() }
    timer.set(to: runtime.options.clock.now + .seconds(2))
    runtime.perform { $0.broker.giveWay { answer.finish() } }
    for await _ in answers {}
    timer.cancel()
  }

  /// Gives up what the broker keeps of the app: the pin of its key, its registration and its presence key. Another container can
  /// enrol with the app's id then. Throws `brokerUnavailable`, and `limitExceeded` after too many changes.
  package func leave() async throws { _ = try await runtime.ask(.leave(WireLeave())) }

  /// Ends all channels with other apps as a broken connection does, and returns how many there were. Others are opened.
  package func cutChannels() async -> Int {
    await runtime.result { core in core.peers.values.reduce(0) { $0 + $1.cutChannels() } }
  }

  /// ``beginHolding()``, and returns when nothing is answered any more.
  package func holdNow() async {
    beginHolding()
    await runtime.result { _ in }
  }
}
