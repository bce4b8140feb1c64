public import ContainerStore
public import Foundation

/// Why something in a container cannot be done: match with `catch SecureFilesError.noSuchFile`. See ``/ContainerStore/ContainerError``.
public typealias SecureFilesError = ContainerError

extension ContainerError: LocalizedError {
  /// What failed, and what to do.
  public var errorDescription: String? { description }
  public var failureReason: String? { what }
  public var recoverySuggestion: String? { remedy }
}
