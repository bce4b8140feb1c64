#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

/// The error numbers that the store distinguishes.
package let missingFile = ENOENT
package let existingFile = EEXIST
let otherName = EMLINK
/// Errors of a path that is missing, or is something other than a regular file.
let absentFile: Set<Int32> = [ENOENT, ENOTDIR, ELOOP, EISDIR, EINVAL, ENXIO]
/// Two that no system gives: of a closed container, and of another container, or an older state, in the place of this one.
let (closedFile, replacedFile): (Int32, Int32) = (-1, -2)
package let noSpace: Set<Int32> = [ENOSPC, EDQUOT]
package let refusedAccess: Set<Int32> = [EACCES, EPERM, EROFS]
/// Errors of a file system that has no locks of open files.
let noLocks: Set<Int32> = [ENOLCK, EINVAL, ENOTSUP, EOPNOTSUPP, ENOSYS]
/// Errors of a file system that makes names durable by itself, or never says when.
let noDirectorySync: Set<Int32> = [EINVAL, ENOTSUP, EOPNOTSUPP]
/// Errors of a file system that does not change the owner of a file.
let noOwners: Set<Int32> = [EPERM, EINVAL, ENOTSUP, EOPNOTSUPP, ENOSYS]
/// Errors of the process, the system or the user, which other files would meet as well.
private let commonFault = Set([EMFILE, ENFILE, ENOMEM, EINTR, EAGAIN, closedFile, replacedFile]).union(
  noSpace
).union(
  refusedAccess)

extension IOFailure {
  /// Whether the failure is one of its file alone, be it EIO or what the file system says of a damaged inode (EUCLEAN, EBADMSG):
  /// another copy may be whole, and other files can be read.
  var isOfFile: Bool { !commonFault.contains(errno) }

  var isReading: Bool { ["open", "read", "fstat", "stat", "opendir", "readdir"].contains(operation) }
}
