import ContainerStore

/// A file or folder, on the native side or in a container.
enum CopyEnd {
  case native(String)
  case container(Container, String)

  var path: String {
    switch self {
    case .native(let path), .container(_, let path): path
    }
  }

  func error(_ code: ContainerError.Code) -> ContainerError {
    switch self {
    case .native(let path): ContainerError(code, nativePath: path)
    case .container(_, let path): ContainerError(code, path: path)
    }
  }

  func below(_ relative: String) -> CopyEnd {
    let path = PathText.below(path, relative)
    return switch self {
    case .native: .native(path)
    case .container(let container, _): .container(container, path)
    }
  }
}
