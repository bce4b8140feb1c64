import AppRuntime

/// The launcher of the app: a button, and a panel that the button opens
/// (Documentation/LAUNCHER.md).
///
/// A process has one launcher. All objects of this class control that one, and share its delegate,
/// its base view controller and its state. Nothing is drawn: a program that draws the launcher
/// reads `GDConfiguration.launcher`. View controllers are objects of any class, which are kept and
/// returned.
///
/// Any thread may use it. Values that are set before the app was shown for the first time are kept,
/// and hold from the launcher's start. Opening or presenting something does nothing while the app
/// is not shown.
public final class GTLauncherViewController: NSObject, Sendable {
  private let app: HostedApp

  /// Makes an object, and keeps the base view controller.
  public override init() { app = .current }

  init(of app: HostedApp) { self.app = app }

  /// Makes an object, and sets the base view controller; nil is allowed. Never fails.
  public init?(baseViewController viewController: AnyObject?) {
    app = .current
    super.init()
    baseViewController = viewController
  }

  // MARK: View controllers

  /// The view controller beneath the panel; nil without one.
  public var baseViewController: AnyObject? {
    get { app.launcherState.withLock { $0.base } }
    set { app.setLauncherBase(newValue) }
  }

  /// The view controller that the delegate returned for the section that was selected last.
  ///
  /// This member is no part of the vendor's interface.
  public var sectionViewController: AnyObject? { app.launcherState.withLock { $0.section } }

  /// The settings that the delegate returned, while they are presented; nil for the common
  /// settings.
  ///
  /// This member is no part of the vendor's interface.
  public var settingsViewController: AnyObject? { app.launcherState.withLock { $0.settings } }

  /// The delegate; not kept alive. Its methods get the object through which it was set, or the
  /// managed object if that one is gone.
  public var delegate: (any GTLauncherViewControllerDelegate)? {
    get { app.launcherState.withLock { $0.delegate } }
    set { app.launcherState.withLock { ($0.delegate, $0.controller) = (newValue, self) } }
  }

  // MARK: Panel and button

  /// Whether the panel is open. Setting it calls ``setOpen(_:animated:)``, animated.
  public var isOpen: Bool {
    get { app.launcherModel.isOpen }
    set { setOpen(newValue, animated: true) }
  }

  /// Opens or closes the panel. Does nothing while the button is hidden.
  public func setOpen(_ open: Bool, animated: Bool) {
    app.applyToLauncher(.setOpen(open, animated: animated))
  }

  /// Whether the button is hidden. Setting it does nothing while the panel is open.
  public var isLauncherButtonHidden: Bool {
    get { app.launcherModel.isButtonHidden }
    set { app.applyToLauncher(.setButtonHidden(newValue)) }
  }

  /// Places the centre of the button at a point in a view of `GDConfiguration.launcherSize`.
  ///
  /// Does nothing once the button has a place in that orientation, and for a point outside of the
  /// view: without a place the button is at the bottom right.
  public func storeLaunchPadButtonImageViewCenterCoordinates(_ point: CGPoint) {
    let size = app.configuration.launcherSize
    let place = LauncherModel.Place(x: point.x / size.width, y: point.y / size.height)
    app.applyToLauncher(.placeButton(at: place, size.width > size.height ? .landscape : .portrait))
  }

  // MARK: Settings and certificates

  /// Presents the settings. The delegate is asked for them.
  public func presentSettings() { app.applyToLauncher(.presentSettings) }

  /// Dismisses the settings.
  public func dismissSettings() { app.applyToLauncher(.dismissSettings) }

  /// Presents the page with the fingerprints of the app's own key and of other apps' keys.
  public func openCertificatesStatus() { app.applyToLauncher(.openCertificates) }

  // MARK: Members of the class

  /// Sets how long a list of apps counts while the broker does not answer: for ever if negative,
  /// not at all if 0, else so many seconds.
  public class func setCacheExpiry(_ seconds: TimeInterval) {
    HostedApp.current.applyToLauncher(.setCacheExpiry(LauncherModel.CacheExpiry(seconds)))
  }

  /// Sets whether the coach mark is shown. The default is until a person has closed it once.
  public class func shouldShowCoachmarkScreen(_ shouldShow: Bool) {
    HostedApp.current.applyToLauncher(.setShowsCoachMark(shouldShow))
  }

  /// Shows or hides a section. An unknown id is kept until its section is registered
  /// (`GDConfiguration.launcherInputs`).
  public class func setSectionEnabled(_ enabled: Bool, forSectionWithIdentifier identifier: String) {
    HostedApp.current.applyToLauncher(.setSectionEnabled(id: identifier, enabled))
  }

  /// Whether a section is registered and not hidden.
  public class func isSectionEnabled(_ identifier: String) -> Bool {
    HostedApp.current.launcherModel.shownSections.contains { $0.id == identifier }
  }

  // MARK: Deprecated

  /// Does nothing: the runtime starts the launcher.
  public func startServices() {}

  /// Does nothing: the runtime starts the launcher.
  @available(*, deprecated, message: "the runtime starts the launcher")
  public func startServices(options: GTLauncherServicesStartupOptions) {}

  /// Does nothing: the runtime starts the launcher.
  @available(*, deprecated, message: "the runtime starts the launcher")
  public func startServices(with options: GTLauncherServicesStartupOptions) {}

  /// Does nothing: there is no push connection to manage.
  @available(*, deprecated, message: "there is no push connection to manage")
  public func setGDPushConnectionStatus(_ status: Int32) {}

  /// Always 1.0.0.
  @available(*, deprecated, message: "the launcher has no version of its own")
  public class func launcherVersion() -> String { "1.0.0" }
}
