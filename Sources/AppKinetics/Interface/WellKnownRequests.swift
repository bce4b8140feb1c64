public import Foundation

extension ServiceRequest {
  /// Hands one file over (`com.good.gdservice.transfer-file`): answered without a value when the receiver took it.
  public static func transferFile(
    _ path: String, foreground: ForegroundPreference = .none
  ) -> ServiceRequest {
    ServiceRequest(
      WellKnownService.transferFile.definition, "transferFile", attachments: [path], foreground: foreground)
  }

  /// Has another app edit a file (`com.good.gdservice.edit-file`). It sends the result back as ``saveEdit(_:identificationData:foreground:)``, with the same
  /// identification data, which is for the sender alone.
  public static func editFile(
    _ path: String, identificationData: Data? = nil, foreground: ForegroundPreference = .peer
  ) -> ServiceRequest {
    ServiceRequest(
      WellKnownService.editFile.definition, "editFile", params: identification(identificationData),
      attachments: [path], foreground: foreground)
  }

  /// Gives an edited file back to the app that sent it for editing (`com.good.gdservice.save-edited-file`).
  public static func saveEdit(
    _ path: String, identificationData: Data? = nil, foreground: ForegroundPreference = .peer
  ) -> ServiceRequest {
    ServiceRequest(
      WellKnownService.saveEditedFile.definition, "saveEdit", params: identification(identificationData),
      attachments: [path], foreground: foreground)
  }

  /// Tells the app that sent a file for editing that nothing more will come of it.
  public static func releaseEdit(
    identificationData: Data? = nil, foreground: ForegroundPreference = .peer
  ) -> ServiceRequest {
    ServiceRequest(
      WellKnownService.saveEditedFile.definition, "releaseEdit", params: identification(identificationData),
      foreground: foreground)
  }

  private static func identification(_ data: Data?) -> ServiceValue? {
    data.map { .object(["identificationData": ServiceValue($0)]) }
  }

  /// Has a mail app prepare a message (`com.good.gfeservice.send-email`). `attachments` are files of the sender's container.
  public static func sendEmail(
    _ email: Email, attachments: [String] = [], foreground: ForegroundPreference = .peer
  ) -> ServiceRequest {
    ServiceRequest(
      WellKnownService.sendEmail.definition, "sendEmail", params: email.params, attachments: attachments,
      foreground: foreground)
  }

  /// Has a browser open a page (`com.good.gdservice.open-url.http`).
  public static func openURL(
    _ url: URL, isFullScreen: Bool? = nil, foreground: ForegroundPreference = .peer
  ) -> ServiceRequest {
    var params: [String: ServiceValue] = ["url": .string(url.absoluteString)]
    if let isFullScreen { params["fullscreen"] = .boolean(isFullScreen) }
    return ServiceRequest(
      WellKnownService.openURL.definition, "open", params: .object(params), foreground: foreground)
  }
}
