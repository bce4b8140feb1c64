import NIOCore

/// How a lane's connection writes what waits in the outbox, and what it does when the peer does not read.
extension LaneConnection {
  /// Of what is written at once: about what a socket takes.
  static var writeByteCountMax: Int { 128 << 10 }

  /// Writes what waits in the outbox, or the first of it, when the socket has taken what was written before. While an event is told it waits,
  /// so that all answers to it are written at once.
  func drain() {
    guard !isTelling, !isWriting, !hasEnded else { return }
    isWriting = true
    let hasMore = write(upTo: unwrittenByteCount == 0 ? Self.writeByteCountMax : 0)
    isWriting = false
    guard !hasEnded else { return }
    guard unwrittenByteCount > 0 else {
      // In another turn, so that no lane keeps the others from theirs.
      if hasMore { context?.eventLoop.assumeIsolated().execute { self.drain() } }
      return
    }
    if !isFull, lane.queuedByteCount > lane.limits.queuedByteCountMax {
      isFull = true
      tell { $0.events.isFull($0, true) }
    }
    watchProgress()
  }

  /// Returns whether more waits in the outbox.
  @discardableResult
  func write(upTo byteCountMax: Int) -> Bool {
    guard let context else { return false }
    let (bytes, hasMore) = lane.outbox.withLock { ($0.take(upTo: byteCountMax), $0.hasFrames) }
    guard let bytes else { return hasMore }
    let byteCount = bytes.readableBytes
    if unwrittenByteCount == 0 { progress.time = .now() }
    unwrittenByteCount += byteCount
    let promise = context.eventLoop.makePromise(of: Void.self)
    promise.futureResult.assumeIsolated().whenSuccess { self.wrote(byteCount) }
    context.writeAndFlush(wrapOutboundOut(bytes), promise: promise)
    return hasMore
  }

  /// Writes what is unhurried after a while; one timer serves many.
  func drainSoon() {
    guard soonTimer == nil, !hasEnded else { return }
    soonTimer = schedule(lane.limits.unhurriedTime) { connection in
      connection.soonTimer = nil
      connection.lane.outbox.withLock { $0.hurry() }
      connection.drain()
    }
  }

  private func wrote(_ byteCount: Int) {
    unwrittenByteCount -= byteCount
    progress.time = .now()
    lane.outbox.withLock { if !$0.isClosed { $0.wrote(byteCount) } }
    if isAskedForRoom {
      tellOfRoomSoon()
    } else if isFull, lane.queuedByteCount <= lane.limits.queuedByteCountMax / 2, !hasEnded {
      isFull = false
      tell { $0.events.isFull($0, false) }
    }
    drain()
  }

  func awaitRoom() {
    isAskedForRoom = true
    tellOfRoomSoon()
  }

  /// Not at once: it may be called within an event, or within a write.
  private func tellOfRoomSoon() {
    context?.eventLoop.assumeIsolated().execute {
      guard self.isAskedForRoom, !self.isTelling, !self.hasEnded,
        self.lane.queuedByteCount <= self.lane.limits.queuedByteCountMax / 2
      else { return }
      self.isAskedForRoom = false
      self.isFull = false
      self.tell { $0.events.isFull($0, false) }
    }
  }

  private func watchProgress() {
    guard progressTimer == nil, !hasEnded else { return }
    progress = (.now(), bufferedByteCount)
    lookAtProgress()
  }

  /// Looks now and then, while something waits, whether less waits than before: what is written at once is done only as a whole.
  private func lookAtProgress() {
    progressTimer = schedule(lane.limits.idleTime / Self.looksInIdleTime) { connection in
      connection.progressTimer = nil
      guard connection.unwrittenByteCount > 0 else { return }
      let buffered = connection.bufferedByteCount
      if buffered < connection.progress.bufferedByteCount { connection.progress.time = .now() }
      connection.progress.bufferedByteCount = buffered
      if connection.progress.time + TimeAmount(connection.lane.limits.idleTime) <= .now() {
        connection.end(LaneEnd(.here, .tooSlow, "the peer reads nothing"))
      } else {
        connection.lookAtProgress()
      }
    }
  }

  /// Sealed bytes that wait in the channel for the socket.
  var bufferedByteCount: Int {
    (try? context?.channel.syncOptions?.getOption(.bufferedWritableBytes)) ?? 0
  }
}
