import EncryptedFile

extension ContainerError {
  /// The error of the file at `path` whose contents or records could not be read. Takes no lock.
  static func ofFile(at path: String, _ error: any Error) -> any Error {
    switch error {
    case let error as ContainerError: error.with(path: path)
    case let failure as IOFailure: from(failure).with(path: path)
    case SegmentError.crypto(let fault): fault
    case let damage as SegmentError:
      ContainerError(.fileDamaged, path: path, detail: damage.description, cause: damage)
    default: error
    }
  }
}
