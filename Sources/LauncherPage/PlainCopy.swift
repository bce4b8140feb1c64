import Foundation
import SecureFiles

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

/// A file of a container in plain, for this user only.
enum PlainCopy {
  /// Makes it under a name that is free in the folder, and returns its path. Of one that cannot be made whole, or may not be any more,
  /// nothing is left.
  static func make(
    of path: String, _ files: SecureFileManager, in folder: String, while mayGoOn: () -> Bool
  ) throws -> String {
    let source = try SecureFileHandle(forReadingFrom: files.url(forPath: path, isDirectory: false), in: files)
    defer { try? source.close() }
    let (descriptor, place) = try create(safeName(path), in: folder)
    do {
      defer { close(descriptor) }
      try withUnsafeTemporaryAllocation(byteCount: 1 << 20, alignment: 16) { buffer in
        while true {
          let count = try source.read(into: buffer)
          guard mayGoOn() else { throw CocoaError(.userCancelled) }
          if count == 0 { break }
          try store(UnsafeRawBufferPointer(rebasing: buffer[..<count]), to: descriptor, place)
        }
      }
      guard fsync(descriptor) == 0 else { throw fault(place) }
    } catch {
      unlink(place)
      throw error
    }
    return place
  }

  private static func create(_ name: String, in folder: String) throws -> (Int32, String) {
    var tried = 0
    while true {
      let number =
        tried
        + FreeName.number { number in
          var status = stat()
          return lstat(folder + "/" + FreeName.text(name, tried + number), &status) == 0
        }
      let place = folder + "/" + FreeName.text(name, number)
      let descriptor = open(place, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0o600)
      if descriptor >= 0 { return (descriptor, place) }
      guard errno == EEXIST else { throw fault(place) }
      // Somebody else has taken it just now.
      tried = number
    }
  }

  private static func store(_ bytes: UnsafeRawBufferPointer, to descriptor: Int32, _ place: String) throws {
    var done = 0
    while done < bytes.count {
      let count = write(descriptor, bytes.baseAddress! + done, bytes.count - done)
      if count < 0, errno == EINTR { continue }
      guard count > 0 else { throw fault(place) }
      done += count
    }
  }

  /// The last name of a path, as one that is seen in a folder and means nothing to a terminal: of another app's choice.
  static func safeName(_ path: String) -> String {
    // By bytes: a slash and a mark behind it are one character.
    let last = path.utf8.split(separator: UInt8(ascii: "/")).last.map { String(decoding: $0, as: UTF8.self) }
    var name = String(
      String.UnicodeScalarView(
        (last ?? "file").unicodeScalars.map {
          switch $0.properties.generalCategory {
          case .control, .format, .lineSeparator, .paragraphSeparator, .surrogate: "_"
          default: $0
          }
        }))
    if name.hasPrefix(".") || name.hasPrefix("-") { name = "_" + name.dropFirst() }
    return name
  }

  private static func fault(_ place: String) -> CocoaError {
    CocoaError(
      errno == ENOSPC || errno == EDQUOT ? .fileWriteOutOfSpace : .fileWriteUnknown,
      userInfo: [
        NSFilePathErrorKey: place, NSLocalizedDescriptionKey: "\(place): \(String(cString: strerror(errno)))",
      ])
  }
}
