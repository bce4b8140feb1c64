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
/// Errors of a single file, not of the process or the system: another copy may be whole.
let fileFault: Set<Int32> = absentFile.union([EIO])
/// Errors of a path that is missing, or is something other than a regular file.
let absentFile: Set<Int32> = [ENOENT, ENOTDIR, ELOOP, EISDIR, EINVAL, ENXIO]
let closedFile = EBADF
package let noSpace: Set<Int32> = [ENOSPC, EDQUOT]
package let refusedAccess: Set<Int32> = [EACCES, EPERM, EROFS]
