import AppKinetics
import SecureFiles

/// Sends requests to other apps. An app makes one, also for several services.
///
/// The functions of this class block the calling thread for a write to the container or to a
/// socket, and use no thread of Swift's cooperative pool. They throw `NSError` of
/// `GDServicesErrorDomain`.
public final class GDServiceClient: NSObject, Sendable {
  private let app = HostedApp.current

  /// Makes a client. Its delegate gets the replies to all requests of the process.
  public override init() {}

  deinit { app.consumer.clear(ownedBy: ObjectIdentifier(self)) }

  /// Receives replies. Not kept alive. What arrives while there is none waits for one.
  public var delegate: (any GDServiceClientDelegate)? {
    get { app.consumer.delegate }
    set { app.consumer.set(newValue, by: self) }
  }

  /// Sends a request, and returns when it was taken, which is not yet delivered. `requestID` gets
  /// its id, which all callbacks about it have.
  ///
  /// `params` is a text, an `NSNumber`, `NSNull`, `Data`, an array of these, a dictionary with
  /// texts as keys, or nil. `attachments` are paths for `GDFileManager`. A request to the app
  /// itself is refused with `GDServicesErrorNotAllowed`.
  public class func send(
    to application: String, withService service: String, withVersion version: String,
    withMethod method: String, withParams params: Any?, withAttachments attachments: [String]?,
    bringServiceToFront option: GDTForegroundOption, requestID: UnsafeMutablePointer<NSString?>?
  ) throws {
    let app = HostedApp.current
    do {
      let services = try app.opened("GDServiceClient.send").services
      let receiver = try ServiceMessages.application(application)
      guard receiver != services.application.id else {
        throw ServicesError(.notAllowed, detail: "an app sends no requests to itself")
      }
      let request = try ServiceMessages.request(
        service, version, method, params: params,
        attachments: (attachments ?? []).map { app.paths.container($0) }, option)
      let sent = try services.sendAndWait(request, to: receiver)
      requestID?.pointee = NSString(string: sent.id.hex)
      app.follow(sent)
    } catch {
      throw VendorError.of(error)
    }
  }

  /// Cancels a request, or with nil all requests to an app, and blocks for the answer, ten seconds
  /// at most. True: the app never gets it, and nothing of it is told. False: it was too late, there
  /// is none, or that app has not answered yet, and will hear of it when it runs.
  public class func cancelRequest(_ requestID: String?, toApplication application: String) -> Bool {
    let app = HostedApp.current
    do {
      let services = try app.opened("GDServiceClient.cancelRequest").services
      let receiver = try ServiceMessages.application(application)
      let id = requestID.map { RequestID(hex: $0) }
      if case .some(.none) = id { return false }
      return try BlockingCall.wait(until: .now() + .seconds(10)) {
        guard let id = id ?? nil else { return try await services.cancelRequests(to: receiver) }
        return try await services.cancelRequest(id, to: receiver)
      } ?? false
    } catch {
      app.configuration.logger.error("a request cannot be cancelled", metadata: ["error": "\(error)"])
      return false
    }
  }

  /// Passes the front on to another app, and starts that app if need be. `completion` is called on
  /// `GDConfiguration.callbackQueue`, with true when the other app is in front.
  public class func bring(
    toFront application: String, completion: @escaping (Bool) -> Void
  ) throws {
    HostedApp.current.bringToFront(application, "GDServiceClient.bring", completion)
  }

  /// Passes the front on to another app, and blocks until that is in front.
  @available(*, deprecated, renamed: "bring(toFront:completion:)")
  public class func bring(toFront application: String) throws {
    try HostedApp.current.bringToFront(application, "GDServiceClient.bring")
  }
}
