/// Receives replies, and what becomes of requests, on `GDConfiguration.callbackQueue`.
///
/// All methods but the first may be left out. Ids of requests are those that `send` has returned.
public protocol GDServiceClientDelegate: AnyObject {
  /// A reply is there with its files, or the request has failed.
  ///
  /// `params` is an `NSError` for a failure: of `GDServicesErrorDomain` when the runtime failed, of
  /// the service's id when the provider's app replied with it. An `Any` that holds nil stands for
  /// no params. `attachments` are paths for `GDFileManager`.
  func gdServiceClientDidReceive(
    from application: String, withParams params: Any, withAttachments attachments: [String],
    correspondingToRequestID requestID: String)
  /// A file begins to be sent. Called for each file.
  func gdServiceClientDidStartSending(
    to application: String, withFilename filename: String, correspondingToRequestID requestID: String)
  /// The provider has its own copies of params and files.
  func gdServiceClientDidFinishSending(
    to application: String, withAttachments attachments: [String], withParams params: Any,
    correspondingToRequestID requestID: String)
  /// A reply with files begins to arrive.
  func gdServiceClientWillStartReceiving(
    from application: String, numberOfAttachments: UInt, forRequestID requestID: String)
  /// A file of a reply begins to arrive, and will be at this path; `fileSize` is in bytes.
  func gdServiceClientWillStartReceiving(
    from application: String, attachmentPath path: String, fileSize: NSNumber,
    forRequestID requestID: String)
}

extension GDServiceClientDelegate {
  public func gdServiceClientDidStartSending(
    to application: String, withFilename filename: String, correspondingToRequestID requestID: String
  ) {}
  public func gdServiceClientDidFinishSending(
    to application: String, withAttachments attachments: [String], withParams params: Any,
    correspondingToRequestID requestID: String
  ) {}
  public func gdServiceClientWillStartReceiving(
    from application: String, numberOfAttachments: UInt, forRequestID requestID: String
  ) {}
  public func gdServiceClientWillStartReceiving(
    from application: String, attachmentPath path: String, fileSize: NSNumber,
    forRequestID requestID: String
  ) {}
}
