import CGD
import SecureFiles

// The name is the vendor's.
// swift-format-ignore: AlwaysUseLowerCamelCase
/// The domain of errors of files, with the codes of `GDFileManagerErrorType`. The vendor does not
/// publish the text: this one is ours.
public let GDFileManagerErrorDomain = "GDFileManagerErrorDomain"

extension CocoaError.Code {
  /// Matches a `CocoaError` with this code, and an error of `GDFileManagerErrorDomain` with such an
  /// error beneath. So `catch CocoaError.fileNoSuchFile` also works for `GDFileManager`.
  public static func ~= (code: CocoaError.Code, error: any Error) -> Bool {
    FileErrors.cocoaError(error)?.code == code
  }
}

/// The one mapping from errors of the container and of native files to those that the vendor's
/// classes throw.
///
/// | Level | Error |
/// |---|---|
/// | thrown | `NSError` of `GDFileManagerErrorDomain` |
/// | its `NSUnderlyingErrorKey` | the `CocoaError` of Foundation in the same case; a `POSIXError` for streams |
/// | below that | a `POSIXError` where there is one |
///
/// Paths in `userInfo` are native, as the app knows them. Other errors, such as `notAuthorized` of
/// `AppRuntimeError`, are thrown as they are.
struct FileErrors {
  /// Keys of Foundation without names of their own.
  private static let pathKeys = [
    NSFilePathErrorKey, "NSSourceFilePathErrorKey", "NSDestinationFilePath",
  ]

  let paths: NativePaths
  /// The paths that the caller wrote, for those that name nothing.
  let given: [String]

  /// The error that is thrown in the place of one that names paths of the container.
  func of(_ error: any Error) -> any Error {
    switch error {
    case let error as NSError where error.domain == GDFileManagerErrorDomain: error
    case let error as CocoaError:
      Self.wrapped(CocoaError(error.code, userInfo: translated(error.userInfo)))
    // On Linux a `POSIXError` forgets what it is made with.
    case let error as POSIXError:
      Self.wrapped(error, translated(error.userInfo), Self.type(nil, error.code))
    case let error as ContainerError:
      Self.of(error, path: error.path.map(native) ?? given.first ?? "")
    default: error
    }
  }

  private func translated(_ userInfo: [String: Any]) -> [String: Any] {
    var userInfo = userInfo
    for key in Self.pathKeys {
      if let path = userInfo[key] as? String { userInfo[key] = native(path) }
    }
    // Errors of streams name none.
    if !(userInfo[NSFilePathErrorKey] is String) { userInfo[NSFilePathErrorKey] = given.first }
    if let url = userInfo[NSURLErrorKey] as? URL, url.isFileURL {
      let path = url.path(percentEncoded: false)
      userInfo[NSURLErrorKey] =
        path.isEmpty ? nil : URL(fileURLWithPath: paths.native(path), isDirectory: url.hasDirectoryPath)
    }
    return userInfo
  }

  /// The empty path stands for one that names nothing in the container.
  private func native(_ path: String) -> String {
    path.isEmpty ? given.first { paths.container($0).isEmpty } ?? "" : paths.native(path)
  }

  // MARK: Native files

  /// Runs a call of Foundation, whose errors name native paths.
  static func ofFoundation<R>(_ body: () throws -> R) throws -> R {
    do { return try body() } catch let error as CocoaError { throw wrapped(error) }
  }

  /// The error of a system call. `path` is native.
  static func of(_ code: POSIXErrorCode, path: String, isReading: Bool = true) -> NSError {
    wrapped(
      CocoaError(
        code.cocoaCode(isReading: isReading),
        userInfo: [NSFilePathErrorKey: path, NSUnderlyingErrorKey: POSIXError(code)]))
  }

  /// The error of a system call, by its number.
  static func of(errno number: Int32, path: String, isReading: Bool = true) -> NSError {
    of(POSIXErrorCode(rawValue: number) ?? .EIO, path: path, isReading: isReading)
  }

  /// The error of a call of the container that is not one of Foundation's, such as an import. `path`
  /// is native.
  static func of(_ error: ContainerError, path: String) -> NSError {
    var userInfo: [String: Any] = [
      NSFilePathErrorKey: path, secureFilesErrorKey: error, NSLocalizedFailureReasonErrorKey: error.what,
      NSLocalizedRecoverySuggestionErrorKey: error.remedy,
    ]
    let posix = error.code.posixCode
    userInfo[NSUnderlyingErrorKey] = posix.map { POSIXError($0) } ?? error as any Error
    return wrapped(
      CocoaError(posix?.cocoaCode(isReading: false) ?? .fileWriteUnknown, userInfo: userInfo))
  }

  // MARK: Codes

  /// The error of a member that does not exist here, with 105 or 110. There is none beneath.
  static func of(_ type: GDFileManagerErrorType, _ text: String) -> NSError {
    NSError(
      domain: GDFileManagerErrorDomain, code: type.rawValue, userInfo: [NSLocalizedDescriptionKey: text])
  }

  /// The error of Foundation, or the one beneath an error of this domain.
  static func cocoaError(_ error: any Error) -> CocoaError? {
    let error = error as NSError
    guard error.domain == GDFileManagerErrorDomain else { return cocoaError(itself: error) }
    return (error.userInfo[NSUnderlyingErrorKey] as? any Error).flatMap { cocoaError(itself: $0) }
  }

  /// Foundation gives its own errors back as `NSError`s on Linux.
  private static func cocoaError(itself error: any Error) -> CocoaError? {
    if let error = error as? CocoaError { return error }
    let error = error as NSError
    return error.domain == NSCocoaErrorDomain
      ? CocoaError(CocoaError.Code(rawValue: error.code), userInfo: error.userInfo) : nil
  }

  /// The domain and the number, for a log without names from the container.
  static func name(_ error: any Error) -> String {
    let error = error as NSError
    return "\(error.domain) \(error.code)"
  }

  private static func wrapped(_ error: CocoaError) -> NSError {
    let posix = (error.userInfo[NSUnderlyingErrorKey] as? POSIXError)?.code
    return wrapped(error, error.userInfo, type(error.code, posix))
  }

  private static func wrapped(
    _ error: any Error, _ userInfo: [String: Any], _ type: GDFileManagerErrorType
  ) -> NSError {
    var userInfo = userInfo
    userInfo[NSUnderlyingErrorKey] = error
    userInfo[secureFilesErrorKey] = nil
    userInfo[NSLocalizedDescriptionKey] = error.localizedDescription
    return NSError(domain: GDFileManagerErrorDomain, code: type.rawValue, userInfo: userInfo)
  }

  /// What the system said, where it said something; else Foundation's code.
  private static func type(
    _ cocoa: CocoaError.Code?, _ posix: POSIXErrorCode?
  ) -> GDFileManagerErrorType {
    switch posix {
    case .ENOENT: return .pathDoesNotExist
    case .EEXIST: return .pathAlreadyExists
    case .ENOTEMPTY: return .directoryNotEmpty
    case .EACCES, .EPERM, .EROFS: return .permissionError
    case .ENOTDIR, .EISDIR, .ELOOP, .EINVAL, .ENAMETOOLONG: return .pathError
    case .EIO, .ENOSPC, .EDQUOT, .EBADF, .ESTALE, .EAGAIN, .EBUSY, .ESPIPE: return .ioError
    case .EOPNOTSUPP: return .notSupported
    default: break
    }
    switch cocoa {
    case .fileNoSuchFile, .fileReadNoSuchFile: return .pathDoesNotExist
    case .fileWriteFileExists: return .pathAlreadyExists
    case .fileReadNoPermission, .fileWriteNoPermission, .fileWriteVolumeReadOnly: return .permissionError
    case .fileReadInvalidFileName, .fileWriteInvalidFileName: return .pathError
    case .fileReadUnsupportedScheme, .fileWriteUnsupportedScheme: return .invalidFileURL
    case .fileReadCorruptFile, .fileReadTooLarge, .fileWriteOutOfSpace: return .ioError
    case .featureUnsupported: return .notSupported
    default: return .unknownError
    }
  }
}

extension POSIXErrorCode {
  /// The code that Foundation has for the failure of a system call.
  fileprivate func cocoaCode(isReading: Bool) -> CocoaError.Code {
    switch self {
    case .ENOENT: isReading ? .fileReadNoSuchFile : .fileNoSuchFile
    case .EACCES, .EPERM: isReading ? .fileReadNoPermission : .fileWriteNoPermission
    case .EEXIST: .fileWriteFileExists
    case .EROFS: isReading ? .fileReadNoPermission : .fileWriteVolumeReadOnly
    case .ENOSPC, .EDQUOT: isReading ? .fileReadUnknown : .fileWriteOutOfSpace
    case .EFBIG: isReading ? .fileReadTooLarge : .fileWriteUnknown
    case .EOPNOTSUPP: .featureUnsupported
    default: isReading ? .fileReadUnknown : .fileWriteUnknown
    }
  }
}

extension ContainerError.Code {
  fileprivate var posixCode: POSIXErrorCode? {
    switch self {
    case .noSuchFile: .ENOENT
    case .notADirectory: .ENOTDIR
    case .isADirectory: .EISDIR
    case .fileExists, .alreadyExists: .EEXIST
    case .directoryNotEmpty: .ENOTEMPTY
    case .tooManyLinks: .ELOOP
    case .invalidName, .invalidArgument, .notASymbolicLink, .moveIntoItself: .EINVAL
    case .diskFull: .ENOSPC
    case .readOnly: .EROFS
    case .notPermitted: .EACCES
    case .cannotStore, .notSupported: .EOPNOTSUPP
    case .sourceChanged: .EBUSY
    case .closed: .EBADF
    case .replaced: .ESTALE
    case .ioFailed: .EIO
    default: nil
    }
  }
}

extension GDFileManager {
  /// Calls `body` with the files of the container, and throws what ``FileErrors`` makes of its error.
  /// `given` are the paths of the call.
  func performing<R>(
    on given: [String], _ call: StaticString = #function, _ body: (SecureFileManager) throws -> R
  ) throws -> R {
    do { return try body(files(call)) } catch {
      throw FileErrors(paths: HostedApp.current.paths, given: given).of(error)
    }
  }

  /// Does the same for URLs.
  func performing<R>(
    on given: [URL], _ call: StaticString = #function, _ body: (SecureFileManager) throws -> R
  ) throws -> R {
    try performing(on: given.map { $0.path(percentEncoded: false) }, call, body)
  }
}
