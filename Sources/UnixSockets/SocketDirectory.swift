#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

/// The directory of a socket, whose permissions decide who can put another socket in its place.
public enum SocketDirectory {
  /// How far other users must be kept out.
  public enum Requirement: Sendable {
    /// Others may not create, remove or replace anything in it.
    case notWritableForOthers
    /// Others have no permission at all.
    case closedToOthers
  }

  /// What is wrong with a directory.
  public enum Fault: Equatable, Sendable, CaseIterable {
    case notADirectory, ownedByAnotherUser, writableForOthers, openToOthers

    /// What failed, to be read after the directory's path.
    public var what: String {
      switch self {
      case .notADirectory: "is not a directory"
      case .ownedByAnotherUser: "belongs to another user, who could replace a socket in it"
      case .writableForOthers: "can be written by other users, who could replace a socket in it"
      case .openToOthers: "is open to other users"
      }
    }

    /// What to do.
    public var remedy: String {
      switch self {
      case .notADirectory: "check the path"
      case .ownedByAnotherUser: "choose a directory of your own"
      case .writableForOthers: "choose another, or take that permission away (chmod go-w)"
      case .openToOthers: "choose another, or take their permissions away (chmod go-rwx)"
      }
    }
  }

  /// Refuses a directory that does not belong to the effective user of this process or does not keep others out. A symbolic
  /// link is followed when it belongs to that user, or to the system's administrator; access control lists are not looked at, nor are the directories above.
  ///
  /// Throws ``SocketError/unsafeDirectory(path:fault:)``, or ``SocketError/callFailed(operation:path:errno:)`` when it cannot be looked at.
  public static func check(_ path: String, _ requirement: Requirement) throws(SocketError) {
    var status = stat()
    guard lstat(path, &status) == 0 else {
      throw .callFailed(operation: "stat", path: path, errno: errno)
    }
    if status.st_mode & S_IFMT == S_IFLNK {
      guard [0, geteuid()].contains(status.st_uid) else {
        throw .unsafeDirectory(path: path, fault: .ownedByAnotherUser)
      }
      guard stat(path, &status) == 0 else {
        throw .callFailed(operation: "stat", path: path, errno: errno)
      }
    }
    guard status.st_mode & S_IFMT == S_IFDIR else {
      throw .unsafeDirectory(path: path, fault: .notADirectory)
    }
    guard status.st_uid == geteuid() else { throw .unsafeDirectory(path: path, fault: .ownedByAnotherUser) }
    guard status.st_mode & 0o022 == 0 else { throw .unsafeDirectory(path: path, fault: .writableForOthers) }
    if requirement == .closedToOthers, status.st_mode & 0o077 != 0 {
      throw .unsafeDirectory(path: path, fault: .openToOthers)
    }
  }

  /// The directory of a socket's path.
  public static func directory(of path: String) -> String {
    guard let slash = path.utf8.lastIndex(of: UInt8(ascii: "/")) else { return "." }
    return slash == path.startIndex ? "/" : String(path[..<slash])
  }
}
