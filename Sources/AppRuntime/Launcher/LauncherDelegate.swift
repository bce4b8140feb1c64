public import AppKinetics

/// Told of what a person does in a launcher. Every method is optional, and is called on the queue of the runtime's events, in order.
public protocol LauncherDelegate: AnyObject, Sendable {
  /// The panel opens: before ``Launcher/changes`` says so.
  func launcherWillOpen(_ launcher: Launcher)
  /// The panel closes: before ``Launcher/changes`` says so.
  func launcherWillClose(_ launcher: Launcher)
  /// A person has chosen another app. With true it comes to front at once; with false whenever the app calls `launch`, now or later.
  func launcher(
    _ launcher: Launcher, shouldLaunch application: ApplicationID, launch: @escaping @Sendable () -> Void
  ) -> Bool
  /// A person has selected a section.
  func launcher(_ launcher: Launcher, didSelectSectionAt location: String)
  /// A person has selected one of the app's own actions.
  func launcher(_ launcher: Launcher, didSelectActionAt location: String)
  /// A person has selected an action that these apps can do, the first by name first. The app sends its request to one of them.
  func launcher(_ launcher: Launcher, didSelect service: ServiceIdentifier, of providers: [ApplicationID])
  /// A person has selected one of the app's own settings.
  func launcher(_ launcher: Launcher, didSelectSetting id: String)
  /// A person wants another password: the app asks for both, and calls ``AppRuntime/changePassword(_:to:)``.
  func launcherChangesPassword(_ launcher: Launcher)
  /// Logs are about to be sent: the app makes them ready and calls `done`, within 30 seconds, after which they are sent without it.
  func launcher(_ launcher: Launcher, beforeUploadingLogs done: @escaping @Sendable () -> Void)
}

extension LauncherDelegate {
  /// Does nothing.
  public func launcherWillOpen(_ launcher: Launcher) {}
  /// Does nothing.
  public func launcherWillClose(_ launcher: Launcher) {}
  /// True.
  public func launcher(
    _ launcher: Launcher, shouldLaunch application: ApplicationID, launch: @escaping @Sendable () -> Void
  ) -> Bool { true }
  /// Does nothing.
  public func launcher(_ launcher: Launcher, didSelectSectionAt location: String) {}
  /// Does nothing.
  public func launcher(_ launcher: Launcher, didSelectActionAt location: String) {}
  /// Does nothing.
  public func launcher(
    _ launcher: Launcher, didSelect service: ServiceIdentifier, of providers: [ApplicationID]
  ) {}
  /// Does nothing.
  public func launcher(_ launcher: Launcher, didSelectSetting id: String) {}
  /// Does nothing.
  public func launcherChangesPassword(_ launcher: Launcher) {}
  /// Calls `done` at once.
  public func launcher(_ launcher: Launcher, beforeUploadingLogs done: @escaping @Sendable () -> Void) {
    done()
  }
}
