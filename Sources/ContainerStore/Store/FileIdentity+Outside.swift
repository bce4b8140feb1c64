#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

extension FileIdentity {
  /// Throws `invalidArgument` for a path in this directory, at whatever depth. Links are followed.
  func requireOutside(_ path: String) throws {
    var status = stat()
    // A new name may have slashes behind it.
    var place = path
    while place.utf8.count > 1, place.utf8.last == UInt8(ascii: "/") { place.removeLast() }
    if stat(place, &status) != 0 {
      place = (place.utf8.lastIndex(of: UInt8(ascii: "/")).map { String(place[...$0]) } ?? "./")
    }
    var last: FileIdentity?
    while stat(place, &status) == 0, last != FileIdentity(status) {
      let isDirectory = status.st_mode & S_IFMT == S_IFDIR
      guard !isDirectory || FileIdentity(status) != self else {
        throw ContainerError(
          .invalidArgument, nativePath: path, detail: "this place is in the container's own directory")
      }
      last = FileIdentity(status)
      if isDirectory {
        place += "/.."
      } else {
        last = nil
        place = (place.utf8.lastIndex(of: UInt8(ascii: "/")).map { String(place[...$0]) } ?? "./")
      }
    }
  }
}
