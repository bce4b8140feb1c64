public import ContainerStore

extension SecureFileManager {
  /// What ``changes(atPath:bufferingAtMost:)`` tells.
  public typealias Change = ContainerChange

  /// Observes an item, and everything below it if it is a directory, from now on: what anybody in this process creates, changes, moves
  /// or removes there, in the order of the commits. There need be nothing at the path yet.
  ///
  /// ```swift
  /// for await change in try files.changes(atPath: "/Inbox") {
  ///   if case .created(let path) = change { print("arrived:", path) }
  /// }
  /// ```
  ///
  /// Ends when the container is closed or the task is cancelled. See ``/ContainerStore/Container/changes(at:bufferingAtMost:)``. Throws
  /// ``SecureFilesError``.
  public func changes(atPath path: String, bufferingAtMost countMax: Int = 4096) throws -> ContainerChanges {
    try store.changes(at: place(path), bufferingAtMost: countMax)
  }
}
