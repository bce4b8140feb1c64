import ContainerStore
public import Foundation

/// The key in `userInfo` of the `CocoaError`s of a ``SecureFileManager``, its handles and streams: the container's own error, a
/// ``SecureFilesError`` that says what failed and what to do.
public let secureFilesErrorKey = "SecureFilesError"

/// Keys that Foundation has, some of them without names.
let userStringVariantKey = "NSUserStringVariant"
let sourcePathKey = "NSSourceFilePathErrorKey"
let destinationPathKey = "NSDestinationFilePath"

/// Whether a call reads or changes, which decides between two codes of Foundation's.
enum FileAccess: Sendable {
  case reading
  case writing
}

/// What Foundation's `FileManager` throws in the same case. What is not the container's stays as it is.
func cocoaError(
  _ error: any Error, path: String, _ access: FileAccess, url: URL? = nil, userInfo: [String: Any] = [:]
) -> any Error {
  guard let error = error as? ContainerError else { return error }
  var userInfo = userInfo
  userInfo[NSFilePathErrorKey] = path
  userInfo[secureFilesErrorKey] = error
  if let url { userInfo[NSURLErrorKey] = url }
  if let posix = error.posixCode {
    userInfo[NSUnderlyingErrorKey] = POSIXError(posix)
  } else {
    userInfo[NSUnderlyingErrorKey] = error
  }
  userInfo[NSLocalizedFailureReasonErrorKey] = error.what
  userInfo[NSLocalizedRecoverySuggestionErrorKey] = error.remedy
  return CocoaError(error.cocoaCode(access), userInfo: userInfo)
}

extension CocoaError: ContainerErrorCarrying {
  /// What the container said, when this error is one of a ``SecureFileManager``.
  public var containerError: ContainerError? { userInfo[secureFilesErrorKey] as? ContainerError }
}

extension ContainerError {
  fileprivate func cocoaCode(_ access: FileAccess) -> CocoaError.Code {
    let isReading = access == .reading
    return switch code {
    case .noSuchFile: isReading ? .fileReadNoSuchFile : .fileNoSuchFile
    case .fileExists, .alreadyExists: .fileWriteFileExists
    case .invalidName: isReading ? .fileReadInvalidFileName : .fileWriteInvalidFileName
    case .diskFull: isReading ? .fileReadUnknown : .fileWriteOutOfSpace
    case .readOnly: isReading ? .fileReadNoPermission : .fileWriteVolumeReadOnly
    case .notPermitted: isReading ? .fileReadNoPermission : .fileWriteNoPermission
    case .fileDamaged, .catalogDamaged, .tableDamaged, .journalDamaged, .journalAltered: .fileReadCorruptFile
    case .cancelled: .userCancelled
    case .notSupported: .featureUnsupported
    default: isReading ? .fileReadUnknown : .fileWriteUnknown
    }
  }

  fileprivate var posixCode: POSIXErrorCode? {
    switch code {
    case .noSuchFile: .ENOENT
    case .notADirectory: .ENOTDIR
    case .isADirectory: .EISDIR
    case .fileExists, .alreadyExists: .EEXIST
    case .directoryNotEmpty: .ENOTEMPTY
    case .invalidName: nameIsTooLong ? .ENAMETOOLONG : .EINVAL
    case .tooManyLinks: .ELOOP
    case .notASymbolicLink, .moveIntoItself, .invalidArgument: .EINVAL
    case .diskFull: .ENOSPC
    case .readOnly: .EROFS
    case .notPermitted: .EACCES
    case .cancelled: .ECANCELED
    case .closed: .EBADF
    case .replaced: .ESTALE
    case .notSupported: .EOPNOTSUPP
    default: nil
    }
  }

  private var nameIsTooLong: Bool {
    path?.utf8.split(separator: UInt8(ascii: "/")).contains { $0.count > FileName.byteCountMax } ?? false
  }
}
