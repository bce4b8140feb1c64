public import AppRuntime

extension GDConfiguration {
  /// The launcher of the app, for tests and for a program that draws it. Nil before the app was
  /// shown for the first time, and when ``startsLauncher`` is false.
  public static var launcher: Launcher? { HostedApp.current.launcher }
}
