#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

/// How many files a process may open.
package enum OpenFiles {
  /// Raises the soft limit to the hard one, and returns it.
  package static func raiseLimit() -> Int {
    #if canImport(Glibc)
      let resource = __rlimit_resource_t(RLIMIT_NOFILE.rawValue)
    #else
      let resource = RLIMIT_NOFILE
    #endif
    var limit = rlimit()
    guard getrlimit(resource, &limit) == 0 else { return 1024 }
    limit.rlim_cur = limit.rlim_max
    if setrlimit(resource, &limit) != 0 { getrlimit(resource, &limit) }
    return Int(clamping: limit.rlim_cur)
  }
}
