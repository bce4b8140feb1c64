import Foundation
import SecureFiles
import SodiumPrimitives

/// A container in a native directory of its own, which goes with it.
final class FilesOfContainer: Sendable {
  let directory: URL
  let container: SecureContainer
  var files: SecureFileManager { container.files }

  init(writeCacheByteCount: Int? = nil) throws {
    directory = FileManager.default.temporaryDirectory.appendingPathComponent("opendynamics-\(UUID())")
    try FileManager.default.createDirectory(at: directory, withIntermediateDirectories: true)
    var options = Self.options
    if let writeCacheByteCount { options.writeCacheByteCount = writeCacheByteCount }
    container = try SecureContainer.create(
      at: directory.appendingPathComponent("container"), rawKey: Self.key(), options: options)
  }

  deinit { try? FileManager.default.removeItem(at: directory) }

  static var options: Container.Options {
    var options = Container.Options()
    options.durability = .none
    options.threadCount = 2
    return options
  }

  static func key() throws -> SecretBytes {
    var key = try SecretBytes(count: 32)
    _ = key.withUnsafeMutableBytes { $0.initializeMemory(as: UInt8.self, repeating: 7) }
    return key
  }

  /// The same container, open for reading only, as it was committed.
  func openedForReading() throws -> SecureContainer {
    try SecureContainer.open(
      at: directory.appendingPathComponent("container"), rawKey: Self.key(), mode: .readOnly,
      options: Self.options)
  }

  /// A file with these contents.
  @discardableResult
  func make(_ path: String, _ contents: Data = Data()) throws -> String {
    try files.write(contents, toPath: path)
    return path
  }
}

/// Bytes of which each depends on its place.
func pattern(_ count: Int, from start: Int = 0) -> Data {
  var data = Data(count: count)
  data.withUnsafeMutableBytes { (bytes: UnsafeMutableRawBufferPointer) in
    // A loop over a range would take a minute for the largest ones, without optimization.
    var i = 0
    while i < count {
      bytes[i] = UInt8(truncatingIfNeeded: (start + i) ^ (start + i) >> 8 ^ (start + i) >> 16)
      i += 1
    }
  }
  return data
}

/// What a call throws, with the POSIX error beneath; nil for success, and for anything but a `CocoaError`.
func thrown(_ body: () throws -> Void) -> (code: CocoaError.Code, posix: POSIXErrorCode?)? {
  do {
    try body()
    return nil
  } catch let error as CocoaError {
    return (error.code, (error.userInfo[NSUnderlyingErrorKey] as? POSIXError)?.code)
  } catch {
    return nil
  }
}
