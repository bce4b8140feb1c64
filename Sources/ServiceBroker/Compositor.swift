/// Who brings apps to front on the screen: the broker asks it before each change.
public enum Compositor: Sendable {
  /// Nobody: each change is done at once.
  case none
  /// A program that is run with the app id as its last argument, without one when nobody is to be in front. It exits with 0 when it has done it.
  case program(String, arguments: [String] = [])
  /// Returns whether it has done it. The app id is nil when nobody is to be in front.
  case function(@Sendable (_ appID: String?) async -> Bool)
}
