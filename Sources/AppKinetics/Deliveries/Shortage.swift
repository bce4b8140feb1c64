import ContainerStore
import SecureFiles
import SodiumPrimitives

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

/// The system, or this process, has too little of something at the moment. The message is as good as before, so it
/// is interrupted and comes again, in place of being refused for good.
enum Shortage {
  /// What the other side reads of it.
  static let detail = "memory or open files"

  static func isReason(of error: any Error) -> Bool {
    switch error {
    case CryptoError.secretMemoryExhausted: true
    case let failure as IOFailure: [EMFILE, ENFILE, ENOMEM].contains(failure.errno)
    // A container that takes no changes any more, for whatever reason once, does not get better.
    case ContainerError.readOnly: false
    case let error as ContainerError: error.cause.map(isReason) ?? false
    default: false
    }
  }
}
