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
  /// The same of a container that fails.
  static let containerDetail = "the container fails"

  static func isReason(of error: any Error) -> Bool {
    switch error {
    case CryptoError.secretMemoryExhausted: true
    case let failure as IOFailure: [EMFILE, ENFILE, ENOMEM].contains(failure.errno)
    // After a write that failed the container takes changes again when it is opened anew: that is no reason to lose a message.
    case ContainerError.readOnly: true
    // The earlier attempt has not let go of its staged files yet.
    case is ArrivalUnderWay: true
    case let error as ContainerError: error.cause.map(isReason) ?? false
    default: false
    }
  }
}
