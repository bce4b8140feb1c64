/// What a test hears of services, and holds up.
package protocol ServicesObserver: Sendable {
  /// A handler is about to begin.
  func willHandle(_ request: IncomingRequest)
  /// The reply, which may be an error, goes on its way when this returns.
  func willReply(to request: IncomingRequest) async
}
