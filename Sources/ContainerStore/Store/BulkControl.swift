/// Progress, cancellation and error handling of a bulk operation.
public struct BulkControl {
  /// Called on the calling thread, at most about twenty times a second, and once at the end.
  public var progress: ((BulkProgress) -> Void)?
  public var cancellation: Cancellation?
  /// Called on the calling thread with the error of each file and directory that is left out: below
  /// an exported one because it is damaged, below an imported one because it cannot be read or
  /// stored. Everything else is copied. Nil: the first of them ends the work, and nothing of it is
  /// left.
  public var skipping: ((ContainerError) -> Void)?

  public init(
    progress: ((BulkProgress) -> Void)? = nil, cancellation: Cancellation? = nil,
    skipping: ((ContainerError) -> Void)? = nil
  ) {
    self.progress = progress
    self.cancellation = cancellation
    self.skipping = skipping
  }
}
