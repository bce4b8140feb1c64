package import Foundation

/// A native directory of one test, mode 0700, removed with its owner. Its path is short, as that of a
/// socket in it has to be.
package final class TemporaryDirectory: Sendable {
  package let path: String

  package init() {
    do { path = try Self.make() } catch { fatalError("a test needs a directory: \(error)") }
  }

  /// A file system in memory where there is one with a gigabyte to spare, so that no test waits for a disk that is busy.
  private static let root: String = {
    var system = statvfs()
    guard statvfs("/dev/shm", &system) == 0, access("/dev/shm", W_OK | X_OK) == 0,
      UInt64(system.f_bavail) * UInt64(system.f_frsize) >= 1 << 30
    else { return "/tmp" }
    return "/dev/shm"
  }()

  /// Makes a directory that its caller removes. Throws `POSIXError`.
  package static func make() throws -> String {
    var template = Array("\(root)/od-XXXXXX".utf8CString)
    guard mkdtemp(&template) != nil else { throw POSIXError(POSIXErrorCode(rawValue: errno) ?? .EIO) }
    return String(decoding: template.dropLast().map { UInt8(bitPattern: $0) }, as: UTF8.self)
  }

  deinit { removeTree(path) }

  package var url: URL { URL(fileURLWithPath: path, isDirectory: true) }

  /// The path of an item in it.
  package subscript(_ name: String) -> String { path + "/" + name }
}

/// Removes a file or directory with everything in it. Fine when it is gone.
package func removeTree(_ path: String) { try? FileManager.default.removeItem(atPath: path) }
