extension GDiOS {
  /// Asks the person for the old and a new password (`GDConfiguration.answer`). False, and nothing is
  /// asked, when another question is, and while the app is not shown.
  @discardableResult
  public func showPreferenceUI(_ base: AnyObject?) -> Bool { HostedApp.current.changePassword() }

  /// Does nothing: there are no screens.
  public func configureUI(withLogo logoPath: String?, bundle: Bundle?, color: Any?) {}

  /// The app that authenticates the person for this one: none.
  public func getAuthDelegate() -> GDAuthDelegateInfo { GDAuthDelegateInfo() }
}

/// The app that authenticates the person for this one. There is none here: texts are empty.
public final class GDAuthDelegateInfo: NSObject, Sendable {
  /// False.
  public let isAuthenticationDelegated = false
  /// Empty.
  public let name = ""
  /// Empty.
  public let address = ""
  /// Empty.
  public let applicationId = ""

  /// Empty.
  public override var description: String { "" }
}

/// The logs of the runtime, which go to `GDConfiguration.logger`.
public final class GDLogManager: NSObject, Sendable {
  private static let shared = GDLogManager()

  private override init() {}

  /// The one object of this class.
  public class func sharedInstance() -> GDLogManager { shared }

  /// Sends the logs by `GDConfiguration.uploadLogs`, and returns at once. False without that: nothing is sent.
  @discardableResult
  public func startUpload() -> Bool {
    let configuration = HostedApp.current.configuration
    guard let upload = configuration.uploadLogs else {
      configuration.logger.error("logs are not sent: GDConfiguration.uploadLogs is not set")
      return false
    }
    Task.detached {
      do { try await upload() } catch {
        configuration.logger.error("logs were not sent", metadata: ["error": "\(error)"])
      }
    }
    return true
  }
}
