/// The reason why the runtime refused something. The description says what failed and what to do; it never holds a
/// password, and no name from inside a container.
public struct AppRuntimeError: Error, Sendable, CustomStringConvertible {
  /// What failed.
  public enum Code: String, Sendable, CaseIterable {
    case managementRefused, stateUnusable, alreadyRunning
  }

  /// What failed.
  public let code: Code
  /// The member of a management file, or the path of a file.
  public let path: String?
  /// What was found and what was expected.
  public let detail: String?
  /// The error beneath.
  public let cause: (any Error)?

  /// Makes an error. None of its parts may hold a password.
  public init(_ code: Code, path: String? = nil, detail: String? = nil, cause: (any Error)? = nil) {
    (self.code, self.path, self.detail, self.cause) = (code, path, detail, cause)
  }

  /// What failed.
  public var what: String {
    let what =
      switch code {
      case .managementRefused: "the management file was refused"
      case .stateUnusable: "the state of the runtime cannot be read or written"
      case .alreadyRunning: "another process of this app runs"
      }
    return what + (path.map { ": \($0)" } ?? "") + ((detail ?? cause.map { "\($0)" }).map { ": \($0)" } ?? "")
  }

  /// What to do.
  public var remedy: String {
    switch code {
    case .managementRefused:
      "the accepted file still holds; correct this one, and check it with `dynamics manage`"
    case .stateUnusable: "check the directory beside the container, its owner and its permissions"
    case .alreadyRunning: "use that process, or end it"
    }
  }

  /// What failed and what to do.
  public var description: String { what + "; " + remedy }
}

extension AppRuntimeError.Code {
  /// Whether an error has this code, for `catch` clauses: `catch AppRuntimeError.Code.alreadyRunning`.
  public static func ~= (code: Self, error: any Error) -> Bool { (error as? AppRuntimeError)?.code == code }
}
