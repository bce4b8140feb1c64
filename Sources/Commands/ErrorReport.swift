import AppRuntime
import ArgumentParser
import ContainerStore
import ServiceValues
import SodiumPrimitives

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

/// What a user or a script is told of an error.
struct ErrorReport: Encodable {
  let code: String
  let message: String
  let path: String?
  let remedy: String?
  let status: ExitStatus
  private let detail: String?
  /// Files that came with a reply that is an error.
  private var attachments: [String]?

  private enum CodingKeys: String, CodingKey {
    case code, message, path, remedy, detail, attachments
  }

  /// Nil for what ArgumentParser reports itself: usage errors, help, and an exit code without a message.
  init?(_ error: any Error) {
    switch error {
    case let reported as ContainerError:
      // A write that failed in the background leaves a container that takes no more: why it failed is what helps.
      let error = reported.code == .readOnly ? reported.cause as? ContainerError ?? reported : reported
      code = error.code.rawValue
      message = error.what
      path = error.path ?? reported.path
      detail = error.detail
      remedy = error.code.programRemedy ?? error.remedy
      status = error.isDamage ? .damage : error.code.status
    case let error as CommandError:
      code = error.code.rawValue
      message = error.code.what
      path = error.path
      detail = error.detail
      remedy = error.code.remedy
      status = error.code.status(errno: error.errno)
    case let error as ServicesError:
      code = error.code.name
      message = error.code.what
      path = error.path
      detail = error.detail
      remedy = error.code.remedy
      status = error.code.status
    case let error as AppRuntimeError:
      code = error.code.rawValue
      message = error.code.what
      path = error.path
      detail = error.reason
      remedy = error.remedy
      status = error.code.status
    case is CancellationError:
      code = ServicesError.Code.cancelled.name
      message = ServicesError.Code.cancelled.what
      path = nil
      detail = nil
      remedy = ServicesError.Code.cancelled.remedy
      status = ServicesError.Code.cancelled.status
    case let error as ServiceReplyError:
      code = "serviceReplyError"
      message =
        error.runtimeError.map { "the other app could not reply: \($0.what)" }
        ?? "the other app replied with error \(error.code)"
      path = error.domain?.text
      detail = error.text.isEmpty ? nil : error.text
      remedy = error.runtimeError?.remedy ?? "see the service's definition for what it means"
      attachments = error.attachments.isEmpty ? nil : error.attachments
      status = .failure
    case let error as any BrokerReporting:
      code = error.reportCode
      message = error.reportMessage
      path = nil
      detail = error.reportDetail
      remedy = error.reportRemedy
      status = error.reportStatus
    case let error as CryptoError:
      code = "cryptoFailed"
      message = error.description
      path = nil
      detail = nil
      remedy = nil
      status = .failure
    default: return nil
    }
  }

  /// `dynamics: what failed: path (detail)`, and what to do on a second line. Nothing for a closed pipe: whoever closed it knows.
  func write(asJSON: Bool, withRemedy: Bool = true) {
    guard status != .signal(SIGPIPE) else { return }
    if asJSON, let text = try? JSONText.of(["error": self]) {
      StandardError.write(text)
      return
    }
    var text = "dynamics: " + message
    if let path { text += ": " + PrintableText.of(path) }
    if let detail { text += " (" + PrintableText.of(detail) + ")" }
    text += "\n"
    for path in attachments ?? [] { text += "  it came with " + PrintableText.of(path) + "\n" }
    if withRemedy, let remedy { text += "  " + remedy + "\n" }
    StandardError.write(text)
  }
}

extension AppRuntimeError.Code {
  fileprivate var status: ExitStatus {
    switch self {
    case .alreadyRunning: .locked
    case .wrongPassword, .wrongUnlockCode, .passwordRefused: .wrongKey
    default: .failure
    }
  }
}

extension ServicesError.Code {
  fileprivate var status: ExitStatus {
    switch self {
    case .applicationNotFound, .serviceNotFound, .versionNotFound, .methodNotFound, .attachmentNotFound,
      .brokerUnavailable, .placeTaken, .notEnrolled:
      .notFound
    case .cancelled: .signal(Interruption.shared.signal)
    case .noSpace: .diskFull
    case .sourceDamaged: .damage
    default: .failure
    }
  }
}

extension ContainerError.Code {
  /// The option or command of this program that helps with the error; nil when there is none, and the error's own advice stands.
  fileprivate var programRemedy: String? {
    switch self {
    case .rolledBack:
      "put the newer superblock back; or look at the older state with --accept-older-state, which in a command that writes "
        + "(container repair) removes the later state for good"
    case .tableDamaged, .catalogDamaged:
      "other files may be whole: get brings out what can be read; else restore the container from a backup"
    case .journalDamaged, .journalAltered:
      "restore the container from a backup, or give up the changes from there on with container repair --accept-loss"
    default: nil
    }
  }

  fileprivate var status: ExitStatus {
    switch self {
    case .catalogDamaged, .fileDamaged, .journalAltered, .journalDamaged, .rolledBack, .superblockAltered,
      .superblockTorn, .tableDamaged:
      .damage
    case .wrongKey: .wrongKey
    case .locked: .locked
    case .noSuchFile, .notAContainer: .notFound
    case .alreadyExists, .directoryNotEmpty, .fileExists, .isADirectory, .notADirectory, .notASymbolicLink:
      .inTheWay
    case .diskFull: .diskFull
    case .cancelled: .signal(Interruption.shared.signal)
    case .cannotStore, .closed, .invalidArgument, .invalidName, .ioFailed, .moveIntoItself, .noFreeKeySlot,
      .notPermitted, .notSupported, .readOnly, .replaced, .sourceChanged, .tooManyLinks, .unsupportedFormat:
      .failure
    }
  }
}
