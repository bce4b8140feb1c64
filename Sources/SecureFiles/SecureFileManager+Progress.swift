import ContainerStore
public import Foundation

// The label `progress:` has no default: without it these would be taken for the synchronous calls of the same name.
extension SecureFileManager {
  /// Copies a file, or a directory with everything in it, in one commit, on a thread of its own. Cancelling the task, or the progress,
  /// leaves nothing behind. The progress counts bytes; the files stand in its `userInfo` (`fileTotalCountKey`,
  /// `fileCompletedCountKey`).
  ///
  /// Throws ``SecureFilesError``: `fileExists` when something is at the destination, `noSuchFile`, `diskFull`, `cancelled`.
  public func copyItem(atPath source: String, toPath destination: String, progress: Progress?) async throws {
    let (source, destination) = (place(source), place(destination))
    try await BlockingCall.run(progress: progress) { [store] in
      try store.copy(source, to: destination, control: $0)
    }
  }

  /// The whole file as it is now, read on a thread of its own. Throws ``SecureFilesError``: `noSuchFile`, `isADirectory`, `fileDamaged`,
  /// `cancelled`, and `invalidArgument` when there is less memory than that.
  public func contents(atPath path: String, progress: Progress?) async throws -> Data {
    let path = place(path)
    return try await BlockingCall.run(progress: progress) { [store] control in
      var contents = Data()
      try store.read(path, control: control) { byteCount in
        guard byteCount <= ProcessInfo.processInfo.physicalMemory else {
          throw SecureFilesError(
            .invalidArgument, path: path,
            detail: "the file has \(byteCount) bytes, more than there is memory: read it in pieces")
        }
        contents.reserveCapacity(Int(byteCount))
      } _: {
        contents.append(contentsOf: $0)
      }
      return contents
    }
  }

  /// Creates a file, or replaces the one that is there, in one step, on a thread of its own. Nothing is left of it when it fails or is
  /// cancelled. Throws ``SecureFilesError``: `noSuchFile` when the directory is missing, `isADirectory`, `diskFull`, `cancelled`.
  public func write(_ data: Data, toPath path: String, progress: Progress?) async throws {
    let path = place(path)
    try await BlockingCall.run(progress: progress) { [store] control in
      try data.withUnsafeBytes { try store.write($0, to: path, control: control) }
    }
  }
}
