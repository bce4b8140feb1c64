public import Foundation

/// A piece of work in the background, as the runtime remembers it.
public struct BackgroundRun: Sendable, Hashable, Codable {
  /// What caused the work.
  public enum Kind: String, Sendable, Hashable, Codable {
    /// The host's timer.
    case fetch
    /// A notification.
    case push
  }

  /// What came of it.
  public enum Result: String, Sendable, Hashable, Codable {
    case newData, noData, failed
    /// The app was not authorized, and the work did not begin.
    case notAuthorized
  }

  /// The most runs that are remembered.
  public static let countMax = 100
  /// The time after which the work is cancelled.
  public static let time = Duration.seconds(30)
  /// The time that cancelled work has to end.
  public static let graceTime = Duration.seconds(5)

  /// What caused the work.
  public let kind: Kind
  /// When it began.
  public let begin: Date
  /// How long it took, in seconds.
  public let seconds: Double
  /// What came of it.
  public let result: Result
  /// The code of the withdrawal, or the error, that kept it from succeeding; nil without one.
  public let reason: String?
}
