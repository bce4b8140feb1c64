/// Receives requests of other apps, and what becomes of replies, on
/// `GDConfiguration.callbackQueue`.
///
/// All methods but the first may be left out.
public protocol GDServiceDelegate: AnyObject {
  /// A request is there with its files. It is replied to with `GDService.reply`, at any later time.
  ///
  /// An `Any` that holds nil stands for no params. `attachments` are paths for `GDFileManager`;
  /// nobody but the app removes them.
  func gdServiceDidReceive(
    from application: String, forService service: String, withVersion version: String,
    forMethod method: String, withParams params: Any, withAttachments attachments: [String],
    forRequestID requestID: String)
  /// A file of a reply begins to be sent. Called for each file.
  func gdServiceDidStartSending(
    to application: String, withFilename filename: String, correspondingToRequestID requestID: String)
  /// The client has its own copies of the reply's params and files.
  func gdServiceDidFinishSending(
    to application: String, withAttachments attachments: [String], withParams params: Any,
    correspondingToRequestID requestID: String)
  /// A request with files begins to arrive.
  func gdServiceWillStartReceiving(
    from application: String, numberOfAttachments: UInt, forRequestID requestID: String)
  /// A file of a request begins to arrive, and will be at this path; `fileSize` is in bytes.
  func gdServiceWillStartReceiving(
    from application: String, attachmentPath path: String, fileSize: NSNumber,
    forRequestID requestID: String)
}

extension GDServiceDelegate {
  public func gdServiceDidStartSending(
    to application: String, withFilename filename: String, correspondingToRequestID requestID: String
  ) {}
  public func gdServiceDidFinishSending(
    to application: String, withAttachments attachments: [String], withParams params: Any,
    correspondingToRequestID requestID: String
  ) {}
  public func gdServiceWillStartReceiving(
    from application: String, numberOfAttachments: UInt, forRequestID requestID: String
  ) {}
  public func gdServiceWillStartReceiving(
    from application: String, attachmentPath path: String, fileSize: NSNumber,
    forRequestID requestID: String
  ) {}
}
