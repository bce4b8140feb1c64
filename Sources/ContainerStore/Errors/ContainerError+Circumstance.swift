extension ContainerError {
  /// The origin of an error, as far as it changes the error's texts.
  enum Circumstance: Sendable {
    case usual
    /// The directory of the container does not exist.
    case missing
    /// The native file system, outside of any container.
    case native
    /// One open file, regardless of the container's own state.
    case handle
    /// A lock that this process holds itself, so that waiting for it is pointless.
    case ownLock
  }

  /// An error of one open file, regardless of the container's own state.
  package init(ofHandle code: Code, path: String, detail: String? = nil) {
    self.init(code, path: path, detail: detail, circumstance: .handle)
  }

  /// The failure: the code's text, or a more exact one for the circumstance.
  public var what: String {
    switch (circumstance, code) {
    case (.handle, .closed): "the file was closed"
    case (.handle, .readOnly): "the file is open for reading only"
    case (.missing, .notAContainer): "there is no such directory"
    case (.ownLock, .locked): "this process has the container open for writing already"
    default: code.what
    }
  }

  /// The action to take: the code's text, or a more exact one for the circumstance.
  public var remedy: String {
    switch (circumstance, code) {
    case (.missing, .notAContainer): "check the path; the directory of a container is made when it is created"
    case (.native, .diskFull): "what was not finished was removed; free some space there, and try again"
    case (.native, .ioFailed): "see the cause, then check the path and the disk that it is on"
    case (.native, .isADirectory): "choose another name, or remove the directory first"
    case (.native, .noSuchFile): "check the path"
    case (.handle, .closed): "open the file again"
    case (.handle, .readOnly): "open the file for writing"
    case (.ownLock, .locked): "use what is open, or close it first"
    default: code.remedy
    }
  }
}
