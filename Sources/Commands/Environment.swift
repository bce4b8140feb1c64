#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

/// Single variables: a copy of the whole environment would have passphrases in it.
enum Environment {
  static func value(_ name: String) -> String? { getenv(name).map { String(cString: $0) } }
}
