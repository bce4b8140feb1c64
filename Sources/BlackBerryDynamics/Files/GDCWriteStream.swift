import SecureFiles

/// A file of the app's container, written in order. It is open from the beginning: `open()` does
/// nothing.
///
/// `close()` commits what was written, and has the status `.error` when that failed. Run loops are
/// not served.
public final class GDCWriteStream: OutputStream {
  private let stream: SecureOutputStream
  private let path: String

  /// Opens a file: makes it if need be, and empties it unless it appends. Throws the error of
  /// opening.
  public init(file filePath: String, append: Bool) throws {
    let manager = GDFileManager.shared
    path = filePath
    stream = try manager.performing(on: [filePath], "getWriteStream") { files in
      let stream = files.outputStream(forPath: manager.container(filePath), append: append)
      stream.open()
      if stream.streamStatus == .error, let error = stream.streamError { throw error }
      return stream
    }
    super.init(toMemory: ())
  }

  /// Foundation requires it. The stream has no file, and takes nothing.
  public required init(toMemory: ()) {
    path = ""
    stream = SecureOutputStream(toMemory: ())
    super.init(toMemory: ())
  }

  /// Does nothing.
  public override func open() {}
  /// Commits what was written, and gives the file up.
  public override func close() { stream.close() }
  /// `.error` after a failure.
  public override var streamStatus: Status { stream.streamStatus }
  /// The error of the last failure, of `GDFileManagerErrorDomain`.
  public override var streamError: (any Error)? {
    stream.streamError.map { FileErrors(paths: HostedApp.current.paths, given: [path]).of($0) }
  }
  /// True while the stream is open.
  public override var hasSpaceAvailable: Bool { stream.hasSpaceAvailable }

  /// Writes, and returns how many bytes were taken; -1 after a failure.
  public override func write(_ buffer: UnsafePointer<UInt8>, maxLength len: Int) -> Int {
    stream.write(buffer, maxLength: len)
  }

  /// `.fileCurrentOffsetKey` alone.
  public override func property(forKey key: PropertyKey) -> AnyObject? { stream.property(forKey: key) }

  /// `.fileCurrentOffsetKey` seeks; false for others.
  public override func setProperty(_ property: AnyObject?, forKey key: PropertyKey) -> Bool {
    stream.setProperty(property, forKey: key)
  }
}
