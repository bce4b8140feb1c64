/// An object that answers the requests of one or several services.
///
/// The calls about one consumer come one after another, and may take their time: nobody else's wait for them, so those about several consumers come at
/// the same time. With ``AppServices/Options/callbackQueue`` all come on that queue.
public protocol ServiceProvider: AnyObject, Sendable {
  /// Files are on their way; once for a request that has any.
  func willReceive(attachmentCount: Int, for request: RequestID, from sender: ApplicationID)
  /// A file begins to arrive, in the order of the message's files: where it will be when ``didReceive(_:)`` is called. It is not to be touched before.
  func willReceive(
    attachment path: String, byteCount: UInt64, for request: RequestID, from sender: ApplicationID)
  /// The request is there with all its files. It ends when this returns if its definition has no reply.
  func didReceive(_ request: IncomingRequest)
  /// The consumer does not want the result any more.
  func didCancel(_ request: IncomingRequest)
  /// A reply's file is about to be copied; told for each file before its first byte.
  func didStartSending(attachment path: String, for request: IncomingRequest)
  /// The consumer has its own copy of the reply: its params, nil for an error, and its files, whose originals may change now. Of a reply of an earlier
  /// process ``AppServices/onOutboxEnd(_:)`` tells.
  func didFinishSending(_ params: ServiceValue?, attachments: [String], for request: IncomingRequest)
  /// The consumer did not get the reply: it went away, or did not ask for it in time.
  func didFailSending(_ request: IncomingRequest, _ error: ServicesError)
}

extension ServiceProvider {
  public func willReceive(attachmentCount: Int, for request: RequestID, from sender: ApplicationID) {}
  public func willReceive(
    attachment path: String, byteCount: UInt64, for request: RequestID, from sender: ApplicationID
  ) {}
  public func didCancel(_ request: IncomingRequest) {}
  public func didStartSending(attachment path: String, for request: IncomingRequest) {}
  public func didFinishSending(
    _ params: ServiceValue?, attachments: [String], for request: IncomingRequest
  ) {}
  public func didFailSending(_ request: IncomingRequest, _ error: ServicesError) {}
}

/// Answers one request: what it returns, or throws, is the reply.
public typealias ServiceHandler = @Sendable (IncomingRequest) async throws -> ServiceResponse
