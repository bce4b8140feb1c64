/// Methods that the launcher calls, on `GDConfiguration.callbackQueue`.
///
/// All methods are optional. Methods that return a view controller may return any class, also as an
/// optional with `?`. A method whose result is declared with `!` is not found, and never called.
public protocol GTLauncherViewControllerDelegate: AnyObject {
  /// The type of view controllers of sections, which Swift infers.
  associatedtype GTLSectionViewController
  /// The type of view controllers of settings, which Swift infers.
  associatedtype GTLSettingsViewController

  /// Called when the panel opens. `isOpen` is true already.
  func launcherViewControllerWillOpen(_ controller: GTLauncherViewController)
  /// Called when the panel closes. `isOpen` is false already.
  func launcherViewControllerWillClose(_ controller: GTLauncherViewController)
  /// Called when a person selects another app. Returns whether that app is brought to front at
  /// once; the default is true. After false the first call of `handler` does it, at any time and
  /// from any thread.
  ///
  /// `address` is the app's `GDServiceProvider.address`.
  func launcherViewController(
    _ controller: GTLauncherViewController, shouldExecuteOpenHandler handler: @escaping () -> Void,
    atAddress address: String
  ) -> Bool
  /// Called before logs are sent. They are sent when `completionHandler` is called, and after 30
  /// seconds without that. The default calls it at once.
  func completeAdditionalProcessing(beforeUploadingLogs completionHandler: (() -> Void)?)
  /// Called when the settings are presented. Returns the app's own settings, for
  /// `GTLauncherViewController.settingsViewController`. The default is nil: the common settings.
  func applicationSettingsTableViewController(
    forLauncher controller: GTLauncherViewController
  ) -> GTLSettingsViewController
  /// Called for each common line when the settings are presented. Returns its style. The default is
  /// nil: the default style.
  func commonSettingsCellConfiguration(
    for cellType: GTLCommonSettingsCellType, launcherViewController controller: GTLauncherViewController
  ) -> GTLCommonSettingsCellConfiguration?
  /// Called when a person selects a section. Returns its view controller, for
  /// `GTLauncherViewController.sectionViewController`.
  func launcherViewController(
    _ controller: GTLauncherViewController, viewControllerForLauncherSectionLocation location: String
  ) -> GTLSectionViewController
  /// Called when a person selects one of the app's own actions.
  func launcherViewController(
    _ controller: GTLauncherViewController, didSelectLocalActionWithLocation location: String
  )
  /// Never called: there are no tokens.
  @available(*, deprecated, message: "it is never called")
  func launcherViewController(
    _ controller: GTLauncherViewController, didRequestGDAuthTokenForServerName name: String,
    completion: @escaping (String) -> Void
  )
}

extension GTLauncherViewControllerDelegate {
  public func launcherViewControllerWillOpen(_ controller: GTLauncherViewController) {}
  public func launcherViewControllerWillClose(_ controller: GTLauncherViewController) {}
  public func launcherViewController(
    _ controller: GTLauncherViewController, shouldExecuteOpenHandler handler: @escaping () -> Void,
    atAddress address: String
  ) -> Bool { true }
  public func completeAdditionalProcessing(beforeUploadingLogs completionHandler: (() -> Void)?) {
    completionHandler?()
  }
  public func applicationSettingsTableViewController(
    forLauncher controller: GTLauncherViewController
  ) -> AnyObject? { nil }
  public func commonSettingsCellConfiguration(
    for cellType: GTLCommonSettingsCellType, launcherViewController controller: GTLauncherViewController
  ) -> GTLCommonSettingsCellConfiguration? { nil }
  public func launcherViewController(
    _ controller: GTLauncherViewController, viewControllerForLauncherSectionLocation location: String
  ) -> AnyObject? { nil }
  public func launcherViewController(
    _ controller: GTLauncherViewController, didSelectLocalActionWithLocation location: String
  ) {}
  @available(*, deprecated, message: "it is never called")
  public func launcherViewController(
    _ controller: GTLauncherViewController, didRequestGDAuthTokenForServerName name: String,
    completion: @escaping (String) -> Void
  ) {}
}
