/// Observes the requests and replies of services, and can delay replies.
package protocol ServicesObserver: Sendable {
  /// A handler is about to begin.
  func willHandle(_ request: IncomingRequest)
  /// A reply, which may be an error, waits until this returns. Returns whether it had to wait; else it needs no thread of
  /// the tasks' pool.
  func mayReply(to request: IncomingRequest) async -> Bool
  /// A reply is about to be sent.
  func willReply(to request: IncomingRequest)
}
