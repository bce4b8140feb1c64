import AppKinetics

/// Calls of the delegates of services.
extension HostedApp {
  /// Tells the client's delegate of the events of a request that was taken, in their order.
  func follow(_ sent: SentRequest) {
    let (application, id) = (sent.application.text, sent.id.hex)
    Task.detached(executorPreference: following) { [self] in
      for await event in sent.events {
        switch event {
        case .didStartSending(let path):
          let path = paths.native(path)
          consumer.call(GDCallback("gdServiceClientDidStartSending", application, id)) {
            $0.gdServiceClientDidStartSending(
              to: application, withFilename: path, correspondingToRequestID: id)
          }
        case .didFinishSending:
          let files = sent.request.attachments.map { paths.native($0) }
          consumer.call(GDCallback("gdServiceClientDidFinishSending", application, id)) {
            $0.gdServiceClientDidFinishSending(
              to: application, withAttachments: files,
              withParams: ServiceMessages.params(sent.request.params), correspondingToRequestID: id)
          }
        case .willReceiveAttachments(let count):
          consumer.call(GDCallback("gdServiceClientWillStartReceiving", application, id)) {
            $0.gdServiceClientWillStartReceiving(
              from: application, numberOfAttachments: UInt(clamping: count), forRequestID: id)
          }
        case .willReceive(attachment: let path, let byteCount):
          let path = paths.native(path)
          consumer.call(GDCallback("gdServiceClientWillStartReceiving", application, id)) {
            $0.gdServiceClientWillStartReceiving(
              from: application, attachmentPath: path, fileSize: NSNumber(value: byteCount),
              forRequestID: id)
          }
        case .didReceive(let reply):
          receive(reply.attachments, from: application, id) { ServiceMessages.params(reply.params) }
        case .didReceiveError(let error):
          receive(sent.replyAttachments, from: application, id) { error.nsError }
        case .didEndWithoutReply: break
        // The app has cancelled the request itself.
        case .didFail(ServicesError.cancelled): break
        // It is in the outbox, goes on when the app is open again, and its reply is an unclaimed one.
        case .didFail(ServicesError.connectionLost) where !sent.request.attachments.isEmpty: break
        case .didFail(let error):
          receive(sent.replyAttachments, from: application, id) { VendorError.of(error) }
        }
      }
    }
  }

  /// A reply to a request that an earlier process sent, or that was sent before the app was locked.
  func received(_ reply: UnclaimedReply) {
    let params: @Sendable () -> Any
    var files: [String] = []
    switch reply.result {
    case .success(let reply):
      files = reply.attachments
      params = { ServiceMessages.params(reply.params) }
    case .failure(let error as ServiceReplyError):
      files = error.attachments
      params = { error.nsError }
    case .failure(let error): params = { VendorError.of(error) }
    }
    receive(files, from: reply.sender.text, reply.request.hex, params)
  }

  private func receive(
    _ files: [String], from application: String, _ id: String, _ params: @escaping @Sendable () -> Any
  ) {
    let files = files.map { paths.native($0) }
    consumer.call(GDCallback("gdServiceClientDidReceive", application, id)) {
      $0.gdServiceClientDidReceive(
        from: application, withParams: params(), withAttachments: files, correspondingToRequestID: id)
    }
  }
}

/// Takes all requests, and gives them to the delegate of `GDService`. Called on the queue of
/// callbacks.
final class ProviderCallbacks: ServiceProvider {
  private let app: HostedApp

  init(_ app: HostedApp) { self.app = app }

  private var end: CallbackEnd<any GDServiceDelegate> { app.provider }

  func willReceive(attachmentCount: Int, for request: RequestID, from sender: ApplicationID) {
    end.callOnQueue(GDCallback("gdServiceWillStartReceiving", sender.text, request.hex)) {
      $0.gdServiceWillStartReceiving(
        from: sender.text, numberOfAttachments: UInt(clamping: attachmentCount),
        forRequestID: request.hex)
    }
  }

  func willReceive(
    attachment path: String, byteCount: UInt64, for request: RequestID, from sender: ApplicationID
  ) {
    let path = app.paths.native(path)
    end.callOnQueue(GDCallback("gdServiceWillStartReceiving", sender.text, request.hex)) {
      $0.gdServiceWillStartReceiving(
        from: sender.text, attachmentPath: path, fileSize: NSNumber(value: byteCount),
        forRequestID: request.hex)
    }
  }

  func didReceive(_ request: IncomingRequest) {
    if request.service.text != GDFrontRequestService {
      for ended in app.replies.add(request) { end.drop(ended.id.hex) }
    }
    let files = request.attachments.map { app.paths.native($0) }
    end.callOnQueue(GDCallback("gdServiceDidReceive", request.sender.text, request.id.hex)) {
      $0.gdServiceDidReceive(
        from: request.sender.text, forService: request.service.text, withVersion: request.version.text,
        forMethod: request.method, withParams: ServiceMessages.params(request.params),
        withAttachments: files, forRequestID: request.id.hex)
    }
  }

  func didStartSending(attachment path: String, for request: IncomingRequest) {
    let path = app.paths.native(path)
    end.callOnQueue(GDCallback("gdServiceDidStartSending", request.sender.text, request.id.hex)) {
      $0.gdServiceDidStartSending(
        to: request.sender.text, withFilename: path, correspondingToRequestID: request.id.hex)
    }
  }

  func didFinishSending(
    _ params: ServiceValue?, attachments: [String], for request: IncomingRequest
  ) {
    let files = attachments.map { app.paths.native($0) }
    end.callOnQueue(GDCallback("gdServiceDidFinishSending", request.sender.text, request.id.hex)) {
      $0.gdServiceDidFinishSending(
        to: request.sender.text, withAttachments: files, withParams: ServiceMessages.params(params),
        correspondingToRequestID: request.id.hex)
    }
  }

  func didFailSending(_ request: IncomingRequest, _ error: ServicesError) {
    app.configuration.logger.notice("a reply did not arrive", metadata: ["error": "\(error)"])
  }
}
