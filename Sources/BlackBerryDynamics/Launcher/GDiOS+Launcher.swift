extension GDiOS {
  /// The object of the launcher that the runtime starts, the same one each time; nil when
  /// `GDConfiguration.startsLauncher` is false. Its delegate may be set at any time.
  public func getManagedLauncherViewController() -> GTLauncherViewController? {
    HostedApp.current.managedLauncher
  }
}
