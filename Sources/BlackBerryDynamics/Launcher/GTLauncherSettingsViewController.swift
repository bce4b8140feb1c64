/// A marker for the launcher's settings among an app's own view controllers. It has no members.
public final class GTLauncherSettingsViewController: NSObject, Sendable {
  /// Makes a marker.
  public override init() {}
}
