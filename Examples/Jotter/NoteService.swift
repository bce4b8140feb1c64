import BlackBerryDynamics.AppKinetics
import BlackBerryDynamics.Runtime

/// The service that Jotter offers, and uses of other apps.
///
/// Its method takes `{"text": String}` and one file at most, and replies `{"count": Int}`.
enum AppendNote {
  static let service = "com.example.jotter.append-note"
  static let version = "1.0.0.0"
  static let method = "appendNote"
  // Errors of the service.
  static let textTooLong = 1
  static let notStored = 2
}

/// Takes notes of other apps.
class NoteService: NSObject, GDServiceDelegate {
  private let service = GDService()
  weak var app: JotterApp?

  override init() {
    super.init()
    service.delegate = self
  }

  func gdServiceDidReceive(
    from application: String, forService service: String, withVersion version: String,
    forMethod method: String, withParams params: Any, withAttachments attachments: [String],
    forRequestID requestID: String
  ) {
    guard let app = app else { return }
    // A front request has no reply.
    if service == GDFrontRequestService { return bringToFront(application, app) }
    var result: Any
    do {
      guard service == AppendNote.service else {
        throw refusal(GDServicesErrorServiceNotFound, "no such service")
      }
      guard version == AppendNote.version else {
        throw refusal(GDServicesErrorServiceVersionNotFound, "no such version")
      }
      guard method == AppendNote.method else {
        throw refusal(GDServicesErrorMethodNotFound, "no such method")
      }
      result = ["count": try takeNote(params, attachments, from: application, app)]
    } catch {
      app.screen?.showError("no note from \(application): \(error.localizedDescription)")
      result = error as NSError
    }
    app.store.discard(attachments)
    do {
      try GDService.reply(
        to: application, withParams: result, bringClientToFront: .GDENoForegroundPreference,
        withAttachments: nil, requestID: requestID)
    } catch {
      app.screen?.showError("no reply to \(application): \(error.localizedDescription)")
    }
  }

  func gdServiceWillStartReceiving(
    from application: String, attachmentPath path: String, fileSize: NSNumber,
    forRequestID requestID: String
  ) {
    app?.screen?.show("receiving \(path)")
  }

  /// Returns how many notes there are then.
  private func takeNote(
    _ params: Any, _ attachments: [String], from application: String, _ app: JotterApp
  ) throws -> Int {
    if app.isReadOnly { throw refusal(GDServicesMethodDisabled, "read only") }
    guard var note = (params as? [String: Any])?["text"] as? String, attachments.count <= 1 else {
      throw refusal(GDServicesErrorInvalidParams, "a text is required, and one file at most")
    }
    if note.count > app.maximumLength {
      throw refusal(AppendNote.textTooLong, "the note is too long", ["maximum": app.maximumLength])
    }
    do {
      if let path = attachments.first { note += " [" + (try app.store.keep(path)) + "]" }
      try app.store.append(note)
      app.screen?.show("note from \(application): \(note)")
      return try app.store.notes().count
    } catch {
      throw refusal(AppendNote.notStored, error.localizedDescription)
    }
  }

  private func refusal(_ code: Int, _ text: String, _ details: [String: Any] = [:]) -> NSError {
    let userInfo = details.merging([NSLocalizedDescriptionKey: text]) { $1 }
    return NSError(domain: AppendNote.service, code: code, userInfo: userInfo)
  }

  /// Lets an app come to the front that works on a note of this one. Others stay where they are.
  private func bringToFront(_ application: String, _ app: JotterApp) {
    guard app.sender.isAwaiting(application) else { return }
    try? GDService.bring(toFront: application) { isInFront in
      app.screen?.show(application + (isInFront ? " is in front" : " stays behind"))
    }
  }
}
