/// The authority over which app is in front on the screen. The broker asks it before each change.
public enum Compositor: Sendable {
  /// No authority: each change is done at once.
  case none
  /// A program that is run with the app id as its last argument, and without one when nobody is to be in front. It exits with 0 when it has done it.
  case program(String, arguments: [String] = [])
  /// A function that returns whether it has made the change. The app id is nil when nobody is to be in front.
  case function(@Sendable (_ appID: String?) async -> Bool)
}
