#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

/// The few error numbers that are told apart.
package let missingFile = ENOENT
package let existingFile = EEXIST
/// Errors of one file, and not of the process or the system: another copy may be whole.
let fileFault: Set<Int32> = absentFile.union([EIO])
/// A file that is not there, or something else in its place.
let absentFile: Set<Int32> = [ENOENT, ENOTDIR, ELOOP, EISDIR, EINVAL, ENXIO]
let closedFile = EBADF
package let noSpace: Set<Int32> = [ENOSPC, EDQUOT]
package let refusedAccess: Set<Int32> = [EACCES, EPERM, EROFS]

extension ContainerError {
  /// What a failed system call means to whoever asked.
  static func from(_ failure: IOFailure) -> ContainerError {
    if noSpace.contains(failure.errno) { return ContainerError(.diskFull, cause: failure) }
    if refusedAccess.contains(failure.errno) {
      return ContainerError(.notPermitted, detail: failure.description, cause: failure)
    }
    if failure.errno == EFBIG {
      return ContainerError(
        .ioFailed,
        detail: failure.description + "; the system limits the length of this process's files (ulimit -f)",
        cause: failure)
    }
    if failure.errno == closedFile { return ContainerError(.closed, cause: failure) }
    return ContainerError(.ioFailed, detail: failure.description, cause: failure)
  }
}
