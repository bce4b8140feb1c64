import ContainerStore
import SecureFiles
import ServiceValues
import SodiumPrimitives

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

/// A shortage keeps a message from being stored and is no fault of the message, which is interrupted or waits, and is not refused for good.
enum Shortage {
  /// What the other side reads of it.
  static let detail = "memory or open files"
  /// The same of a container that fails.
  static let containerDetail = "the container fails"

  /// The system, or this process, has too little of something at the moment: the message comes again at once.
  static func isReason(of error: any Error) -> Bool {
    switch error {
    case CryptoError.secretMemoryExhausted: true
    case let failure as IOFailure: [EMFILE, ENFILE, ENOMEM].contains(failure.errno)
    // The earlier attempt has not let go of its staged files yet.
    case is ArrivalUnderWay: true
    case let error as ContainerError: error.cause.map(isReason) ?? false
    default: false
    }
  }

  /// The container was closed under the services.
  static func isOfClosedContainer(_ error: any Error) -> Bool {
    switch error {
    case ContainerError.closed, CryptoError.keysWiped: true
    default: false
    }
  }

  /// The container takes nothing: it is closed, read-only, full, or fails. The message waits.
  static func isOfContainer(_ error: any Error) -> Bool {
    switch error {
    // These are the message's own.
    case ContainerError.invalidName, ContainerError.invalidArgument, ContainerError.fileExists,
      ContainerError.noSuchFile:
      false
    case is ContainerError, is IOFailure: !isReason(of: error)
    default: isOfClosedContainer(error)
    }
  }

  /// The error that the sender hears, which names no path of this container.
  static func refusal(for error: any Error) -> ServicesError {
    switch error {
    case let error as ServicesError: error
    case let error as ArrivalLimit: ServicesError(.limitExceeded, detail: error.name)
    case ContainerError.invalidName, ContainerError.invalidArgument:
      ServicesError(.invalidParams, detail: "the list of files, or the contents")
    default: ServicesError(.general, detail: "the receiver cannot store the files")
    }
  }
}
