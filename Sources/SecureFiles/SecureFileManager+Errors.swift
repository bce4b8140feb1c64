import ContainerStore
import Foundation

extension SecureFileManager {
  /// Calls `body` with the path that the URL names; the error names the URL that was given.
  func reading<R>(at url: URL, _ body: (String) throws -> R) throws -> R {
    let path = try path(for: url, .reading)
    do { return try body(path) } catch { throw Self.naming(url, error) }
  }

  /// The same when something is changed.
  func writing<R>(at url: URL, _ body: (String) throws -> R) throws -> R {
    let path = try path(for: url, .writing)
    do { return try body(path) } catch { throw Self.naming(url, error) }
  }

  private static func naming(_ url: URL, _ error: any Error) -> any Error {
    guard let error = error as? CocoaError else { return error }
    return CocoaError(error.code, userInfo: error.userInfo.merging([NSURLErrorKey: url]) { $1 })
  }

  /// The absolute path of an item that is to lose its place. Throws `invalidArgument` when the path ends with `.` or `..`, which is not
  /// the item's name, and as ``placeOfItem(_:)`` does.
  func placeToLeave(_ path: String) throws -> String {
    let place = try placeOfItem(path)
    guard let last = place.split(separator: "/").last, last != ".", last != ".." else {
      if place.isEmpty { return place }
      throw SecureFilesError(.invalidArgument, path: place, detail: "the path does not end with a name")
    }
    return place
  }

  /// What stands before the last name of an absolute path without a slash at its end.
  func parent(of place: String) -> String {
    guard let slash = place.utf8.lastIndex(of: UInt8(ascii: "/")), slash != place.startIndex else {
      return "/"
    }
    return String(place[..<slash])
  }

  /// The absolute path of an item itself. A path with a slash at its end names a directory, which a link to one is not: what it leads
  /// to must not be taken for it. Throws `notADirectory`.
  func placeOfItem(_ path: String) throws -> String {
    let place = place(path)
    let item = place.withoutTrailingSlashes
    guard item != place, let found = try store.attributes(at: item), found.kind != .directory else {
      return item
    }
    throw SecureFilesError(.notADirectory, path: place)
  }
}
