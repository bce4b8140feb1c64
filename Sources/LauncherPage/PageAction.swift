import AppKinetics
import AppRuntime
import Foundation

/// What a person does in the page.
struct PageAction: Decodable, Sendable {
  enum Kind: String, Decodable {
    case active
    case close, tap, move
    case section, action, quickAction, app
    case settings, setting, certificates, dismiss
    case cancelSent, cancelArriving
    case openFile, saveFile, saveMessage, removeMessage
  }

  var kind: Kind
  /// Of a section, an action, an app, a setting, or a request.
  var id: String?
  /// The other app.
  var app: String?
  var isReply: Bool?
  /// In the container.
  var path: String?
  var place: LauncherModel.Place?
  var orientation: LauncherModel.Orientation?

  /// What the launcher is told; nil when it is no matter of its, or does not say enough.
  var input: LauncherModel.Input? {
    switch kind {
    case .close: .setOpen(false, animated: true)
    case .tap: .buttonTapped
    case .move:
      if let place, let orientation { .buttonMoved(to: place, orientation) } else { nil }
    case .section: id.map { .selectSection(id: $0) }
    case .action: id.map { .selectAction(location: $0) }
    case .quickAction:
      id.flatMap { try? ServiceIdentifier($0) }.map { .selectQuickAction(service: $0) }
    case .app: id.flatMap { try? ApplicationID($0) }.map { .selectApp($0) }
    case .settings: .presentSettings
    case .certificates: .openCertificates
    case .dismiss: .dismiss
    case .setting:
      switch id {
      case "changePassword": .selectSetting(.changePassword)
      case "launcher": .selectSetting(.launcher)
      case "uploadLogs": .selectSetting(.uploadLogs)
      default: nil
      }
    default: nil
    }
  }
}
