#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

extension ContainerError {
  /// The container error for a failed system call.
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
    if failure.errno == EAGAIN, failure.operation == "pthread_create" {
      return ContainerError(
        .ioFailed,
        detail: failure.description
          + "; the system limits the number of threads (ulimit -u, TasksMax, --pids-limit)",
        cause: failure)
    }
    if failure.operation == "lock", noLocks.contains(failure.errno) {
      return ContainerError(
        .ioFailed,
        detail: failure.description
          + "; this file system has no locks of open files, and without them two writers destroy what the "
          + "other writes: it can be read here, and written to where there are locks",
        cause: failure)
    }
    if failure.errno == replacedFile { return ContainerError(.replaced, cause: failure) }
    if failure.errno == closedFile { return ContainerError(.closed, cause: failure) }
    return ContainerError(.ioFailed, detail: failure.description, cause: failure)
  }
}
