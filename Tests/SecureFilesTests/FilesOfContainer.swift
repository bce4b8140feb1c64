import Foundation
import SecureFiles
import SodiumPrimitives
import TestSupport

/// A container in a native directory of its own, which goes with it.
final class FilesOfContainer: Sendable {
  private let temporary = TemporaryDirectory()
  var directory: URL { temporary.url }
  let container: SecureContainer
  var files: SecureFileManager { container.files }

  init(writeCacheByteCount: Int? = nil) throws {
    var options = Self.options
    if let writeCacheByteCount { options.writeCacheByteCount = writeCacheByteCount }
    container = try SecureContainer.create(
      at: temporary.url.appendingPathComponent("container"), rawKey: Self.key(), options: options)
  }

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
      at: temporary.url.appendingPathComponent("container"), rawKey: Self.key(), mode: .readOnly,
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
  var data = Data(capacity: count + 2 * 256)
  for row in start / 256...(start + count) / 256 {
    data.append(rows[(row ^ row >> 8) & 255])
  }
  return Data(data.dropFirst(start % 256).prefix(count))
}

/// The bytes of each 256 places, which are copied, since a loop over each byte takes a minute in code that is not optimised.
private let rows = (0..<256).map { row in Data((0..<256).map { UInt8($0 ^ row) }) }

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
