import ContainerStore
public import Foundation

/// What a stream tells of a failure: as Foundation's, an error of POSIX where one exists.
func streamFailure(_ error: any Error, path: String, _ access: FileAccess) -> any Error {
  let error = cocoaError(error, path: path, access)
  guard let cocoa = error as? CocoaError,
    let posix = cocoa.userInfo[NSUnderlyingErrorKey] as? POSIXError
  else { return error }
  return POSIXError(posix.code, userInfo: cocoa.userInfo.filter { $0.key != NSUnderlyingErrorKey })
}

/// Why a stream does not seek.
func seekFailure(path: String, _ access: FileAccess) -> any Error {
  cocoaError(
    ContainerError(
      ofHandle: .closed, path: path, detail: "the stream is not open, or the offset is not below 2^63"),
    path: path, access)
}

extension POSIXError: ContainerErrorCarrying {
  /// What the container said, when this error is one of a stream.
  public var containerError: ContainerError? { userInfo[secureFilesErrorKey] as? ContainerError }
}

extension NSNumber {
  /// The offset that a stream's property holds; nil for a negative one.
  var fileOffset: UInt64? { UInt64(exactly: int64Value) }
}
