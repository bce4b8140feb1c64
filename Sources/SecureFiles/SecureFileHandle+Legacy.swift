import ContainerStore
public import Foundation

/// The older names. They end the process with a message where the throwing members throw, as Foundation's do.
extension SecureFileHandle {
  /// Everything from the offset on; empty at the end.
  public var availableData: Data { readDataToEndOfFile() }

  /// Everything from the offset on; empty at the end.
  public func readDataToEndOfFile() -> Data { mustSucceed { try readToEnd() } ?? Data() }

  /// So many bytes from the offset on, fewer where the file ends.
  public func readData(ofLength length: Int) -> Data {
    mustSucceed { try read(upToCount: length) } ?? Data()
  }

  /// Writes at the offset and moves it on.
  public func write(_ data: Data) { mustSucceed { try write(contentsOf: data) } }

  /// Where the next read or write begins.
  public var offsetInFile: UInt64 { mustSucceed { try offset() } }

  /// Moves to the end of the file and returns where that is.
  @discardableResult
  public func seekToEndOfFile() -> UInt64 { mustSucceed { try seekToEnd() } }

  /// Moves the offset, be it past the end.
  public func seek(toFileOffset offset: UInt64) { mustSucceed { try seek(toOffset: offset) } }

  /// Cuts the file at an offset, or makes it longer with zeros, and moves there.
  public func truncateFile(atOffset offset: UInt64) { mustSucceed { try truncate(atOffset: offset) } }

  /// Makes durable what was written.
  public func synchronizeFile() { mustSucceed { try synchronize() } }

  /// Commits what was written and gives the file up. Closing twice is fine.
  public func closeFile() { mustSucceed { try close() } }

  private func mustSucceed<R>(_ call: StaticString = #function, _ body: () throws -> R) -> R {
    do {
      return try body()
    } catch {
      // Not the whole error: its path is a name from inside the container.
      let reason = (error as? CocoaError)?.containerError?.description ?? String(describing: type(of: error))
      fatalError(
        "SecureFileHandle.\(call) failed: \(reason); the members of today's FileHandle throw instead")
    }
  }
}
