/// The effect of a commit on a file, directory or link at or below an observed path. Paths are
/// absolute and contain no links.
public enum ContainerChange: Hashable, Sendable {
  /// The item exists now and did not before: it was made, copied, imported, delivered, or moved
  /// here from elsewhere. Everything that appears with a directory is reported separately, parents
  /// first.
  case created(path: String)
  /// The contents changed: written through a handle, or replaced by another file in one step.
  case changed(path: String)
  /// Dates, permissions, extended attributes or the number of links changed. A new date of a
  /// directory that results from changes inside it is not reported.
  case attributesChanged(path: String)
  /// The item has another path, with everything in it. An item that was at the new path before is
  /// no longer there.
  case moved(from: String, to: String)
  /// The item is gone, or is no longer at or below the observed path, with everything in it. The
  /// items in it are not reported separately.
  case removed(path: String)
  /// Changes were dropped because the buffer was full or because they could not be determined. The
  /// observer must reread the container.
  case overflowed

  /// The item's current path, or its last path if it was removed; nil for ``overflowed``.
  public var path: String? {
    switch self {
    case .created(let path), .changed(let path), .attributesChanged(let path), .removed(let path): path
    case .moved(_, let path): path
    case .overflowed: nil
    }
  }
}
