import AppKinetics
import SecureFiles

/// Receives requests of other apps, and replies. An app makes one, also for several services.
///
/// The functions of this class block the calling thread for a write to the container or to a
/// socket, and use no thread of Swift's cooperative pool.
public final class GDService: NSObject, Sendable {
  private let app = HostedApp.current

  /// Makes a service. Its delegate gets all requests to the process.
  public override init() {}

  deinit { app.provider.clear(ownedBy: ObjectIdentifier(self)) }

  /// Receives requests. Not kept alive. What arrives while there is none waits for one.
  public var delegate: (any GDServiceDelegate)? {
    get { app.provider.delegate }
    set { app.provider.set(newValue, by: self) }
  }

  /// Replies to a request, at any time and from any thread, and returns when the reply was taken,
  /// which is not yet delivered. Without `application`: to whoever sent that request.
  ///
  /// `params` is what `GDServiceClient.send` takes, or an `NSError`, whose domain becomes the
  /// service's id. Throws `NSError` of `GDServicesErrorDomain` with `GDServicesErrorInvalidParams`
  /// for params and files that cannot be sent. Other failures are logged, because code replies with
  /// `try!`: the request is unknown or was replied to, or the app is not authorized.
  public class func reply(
    to application: String?, withParams params: Any?, bringClientToFront option: GDTForegroundOption,
    withAttachments attachments: [String]?, requestID: String
  ) throws {
    let app = HostedApp.current
    do {
      let services = try app.opened("GDService.reply").services
      let sender = try application.map { text throws(ServicesError) in try ServiceMessages.application(text) }
      let files = (attachments ?? []).map { app.paths.container($0) }
      let foreground = ForegroundPreference(option)
      let reply: Result<ServiceValue?, ServiceReplyError>
      if let error = params as? any Error {
        var failure = try ServiceReplyError(replying: error)
        failure.attachments += files
        reply = .failure(failure)
      } else {
        reply = .success(try ServiceMessages.value(params))
      }
      guard let id = RequestID(hex: requestID) else {
        return app.configuration.logger.error("a reply to a request without an id is not sent")
      }
      let request = app.replies.take(id)
      try BlockingCall.wait {
        switch (request, reply) {
        case (let request?, .success(let value)):
          try await request.reply(value, attachments: files, foreground: foreground)
        case (let request?, .failure(let error)):
          try await request.reply(error: error, foreground: foreground)
        case (nil, .success(let value)):
          try await services.reply(
            value, attachments: files, foreground: foreground, to: id, from: sender)
        case (nil, .failure(let error)):
          try await services.reply(error: error, foreground: foreground, to: id, from: sender)
        }
      }
    } catch let error as ServicesError where error.code == .invalidParams || error.code == .attachmentNotFound
    {
      throw VendorError.of(error)
    } catch {
      app.configuration.logger.error("a reply is not sent", metadata: ["error": "\(error)"])
    }
  }

  /// Passes the front on to another app, and starts that app if need be. `completion` is called on
  /// `GDConfiguration.callbackQueue`, with true when the other app is in front.
  public class func bring(
    toFront application: String, completion: @escaping (Bool) -> Void
  ) throws {
    HostedApp.current.bringToFront(application, "GDService.bring", completion)
  }

  /// Passes the front on to another app, and blocks until that is in front.
  @available(*, deprecated, renamed: "bring(toFront:completion:)")
  public class func bring(toFront application: String) throws {
    try HostedApp.current.bringToFront(application, "GDService.bring")
  }
}
