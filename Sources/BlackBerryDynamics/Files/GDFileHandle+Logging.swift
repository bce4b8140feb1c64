import SecureFiles

/// Members of the vendor's interface that do not throw. A failure is logged.
extension GDFileHandle {
  /// Everything from the offset on.
  public func readDataToEndOfFile() -> Data { logged { try readToEnd() } ?? Data() }

  /// At most so many bytes from the offset on; none at the end.
  public func readData(ofLength length: Int) -> Data {
    logged { try read(upToCount: length) } ?? Data()
  }

  /// Everything from the offset on: files never wait for more.
  public var availableData: Data { readDataToEndOfFile() }

  /// Writes at the offset.
  public func write(_ data: Data) { _ = logged { try write(contentsOf: data) } }

  /// The offset in bytes; 0 when it is not known.
  public var offsetInFile: UInt64 { logged { try offset() } ?? 0 }

  /// Moves to the end, and returns where that is, in bytes.
  @discardableResult
  public func seekToEndOfFile() -> UInt64 { logged { try seekToEnd() } ?? 0 }

  /// Moves to an offset in bytes.
  public func seek(toFileOffset offset: UInt64) { _ = logged { try seek(toOffset: offset) } }

  /// Cuts or extends the file to so many bytes, and moves there.
  public func truncateFile(atOffset offset: UInt64) {
    _ = logged { try truncate(atOffset: offset) }
  }

  /// Makes durable what was written.
  public func synchronizeFile() { _ = logged { try synchronize() } }

  /// Commits what was written, and gives the file up.
  public func closeFile() { _ = logged { try close() } }
}
