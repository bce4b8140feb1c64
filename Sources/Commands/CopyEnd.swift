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

  func below(_ item: CopyItem) -> CopyEnd {
    switch self {
    case .native(let path): .native(PathText.below(path, item.nativeRelative))
    case .container(let container, let path): .container(container, PathText.below(path, item.relative))
    }
  }
}
