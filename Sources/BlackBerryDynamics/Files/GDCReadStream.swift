import SecureFiles

/// A file of the app's container, read in order; a native one where the container has nothing of that
/// path. It is open from the beginning: `open()` does nothing.
///
/// A read of 0 bytes tells the end, and -1 a failure (`streamError`). Run loops are not served.
public final class GDCReadStream: InputStream {
  private let stream: InputStream
  private let path: String

  /// Opens a file. Throws the error of opening.
  public init(file filePath: String) throws {
    let manager = GDFileManager.shared
    path = filePath
    stream = try manager.performing(on: [filePath], "getReadStream") { files -> InputStream in
      let stream = files.inputStream(forPath: manager.container(filePath))
      stream.open()
      guard stream.streamStatus == .error, let error = stream.streamError else { return stream }
      guard let item = manager.nativeItem(filePath, files) else { throw error }
      return NativeInputStream(try item.open())
    }
    super.init(data: Data())
  }

  /// The next read begins at an offset in bytes. Returns false when the stream is not open.
  @discardableResult
  public func seek(toFileOffset offset: UInt64) -> Bool {
    stream.setProperty(NSNumber(value: offset), forKey: .fileCurrentOffsetKey)
  }

  /// Does nothing.
  public override func open() {}
  /// Gives the file up.
  public override func close() { stream.close() }
  /// `.atEnd` once a read has found the end; `.error` after a failure.
  public override var streamStatus: Status { stream.streamStatus }
  /// The error of the last failure, of `GDFileManagerErrorDomain`.
  public override var streamError: (any Error)? {
    stream.streamError.map { FileErrors(paths: HostedApp.current.paths, given: [path]).of($0) }
  }
  /// True until a read has found the end.
  public override var hasBytesAvailable: Bool { stream.hasBytesAvailable }

  /// Fills the caller's memory; returns how many bytes there were.
  public override func read(_ buffer: UnsafeMutablePointer<UInt8>, maxLength len: Int) -> Int {
    stream.read(buffer, maxLength: len)
  }

  /// Always false.
  public override func getBuffer(
    _ buffer: UnsafeMutablePointer<UnsafeMutablePointer<UInt8>?>, length len: UnsafeMutablePointer<Int>
  ) -> Bool { false }

  /// `.fileCurrentOffsetKey` alone.
  public override func property(forKey key: PropertyKey) -> AnyObject? { stream.property(forKey: key) }

  /// `.fileCurrentOffsetKey` seeks; false for others.
  public override func setProperty(_ property: AnyObject?, forKey key: PropertyKey) -> Bool {
    stream.setProperty(property, forKey: key)
  }
}
