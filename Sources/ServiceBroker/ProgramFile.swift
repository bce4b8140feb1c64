import CPosix
import Foundation

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

/// The file of a program that the broker is to start as its user.
enum ProgramFile {
  private static let linkCountMax = 40

  /// Why nobody should start what is at an absolute path; nil when it may be started. Every folder, link and file on the way belongs to
  /// the user or to root, and nobody else can write to them, but in folders where each changes only what is its own (`/tmp`).
  static func fault(at path: String) -> String? {
    var root = stat()
    guard lstat("/", &root) == 0 else { return "/: \(errorText())" }
    if let fault = fault(of: root, at: "/") { return "/ \(fault)" }
    var rest = Array(parts(of: path).reversed())
    var folder = ""
    var linkCount = 0
    while let part = rest.popLast() {
      let place = "\(folder)/\(part)"
      var status = stat()
      guard lstat(place, &status) == 0 else { return "\(place): \(errorText())" }
      if let fault = fault(of: status, at: place) { return "\(place) \(fault)" }
      switch status.st_mode & S_IFMT {
      case S_IFDIR: folder = place
      case S_IFLNK:
        linkCount += 1
        guard linkCount <= linkCountMax,
          let target = try? FileManager.default.destinationOfSymbolicLink(atPath: place)
        else { return "\(place): too many links" }
        if target.hasPrefix("/") { folder = "" }
        rest += parts(of: target).reversed()
      case S_IFREG where rest.isEmpty:
        return access(place, X_OK) == 0 ? nil : "\(place): \(errorText())"
      default: return "\(place) is no program"
      }
    }
    return "\(path) is no program"
  }

  private static func parts(of path: String) -> [Substring] {
    path.split(separator: "/").filter { $0 != "." }
  }

  private static func errorText() -> String { String(cString: strerror(errno)) }

  private static func fault(of status: stat, at place: String) -> String? {
    let owner = status.st_uid
    if owner != 0, owner != geteuid() { return "belongs to another user" }
    let kind = status.st_mode & S_IFMT
    // A link has no modes of its own, and in a folder with this bit everybody changes only what is theirs.
    if kind == S_IFLNK || kind == S_IFDIR && status.st_mode & S_ISVTX != 0 { return nil }
    if status.st_mode & S_IWOTH != 0 { return "can be written by everybody: chmod o-w" }
    // Whom root lets write, root has chosen; and the group of a user's name, without others in it, is the user's alone.
    guard status.st_mode & S_IWGRP != 0, owner != 0 else { return nil }
    if cposix_has_access_list(place) != 0 {
      return "has an access list by which others may write: setfacl -b"
    }
    return isPrivate(status.st_gid) ? nil : "can be written by its group: chmod g-w"
  }

  private static let userName = getpwuid(geteuid())?.pointee.pw_name.map { String(cString: $0) }

  private static func isPrivate(_ number: gid_t) -> Bool {
    guard let group = getgrgid(number)?.pointee, let name = group.gr_name else { return false }
    var others = group.gr_mem
    while let member = others?.pointee {
      if String(cString: member) != userName { return false }
      others = others?.advanced(by: 1)
    }
    return String(cString: name) == userName
  }
}
