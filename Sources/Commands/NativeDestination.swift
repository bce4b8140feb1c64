import ContainerStore

/// Where in the native file system a file or folder of a container goes when LOCAL is given as for
/// cp(1).
struct NativeDestination {
  let local: String
  let kind: NativeKind

  /// Throws `nativeMissing` when the folder that is to hold it is not there.
  init(_ local: String) throws {
    self.local = local
    kind = local == "-" ? .stream : try NativeKind(at: local)
    if kind == .missing, try NativeKind(at: PathText.parent(local)) != .directory {
      throw CommandError(
        .nativeMissing, path: PathText.parent(local), detail: "the folder that is to hold it")
    }
  }

  /// LOCAL, or the place inside when it is a folder.
  func place(of path: String, _ source: FileAttributes) throws -> String {
    let isFile = source.kind != .directory
    if kind == .directory {
      guard let name = PathText.baseName(path) else { return PathText.trimmed(local) }
      return PathText.joined(local, name)
    }
    if isFile, PathText.endsWithSlash(local) {
      throw CommandError(.nativeMissing, path: local, detail: "a folder of that name")
    }
    if !isFile, kind == .file { throw ContainerError(.fileExists, nativePath: local) }
    return PathText.trimmed(local)
  }
}
