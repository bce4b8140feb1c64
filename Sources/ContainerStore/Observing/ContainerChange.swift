/// What a commit did to a file, directory or link at or below an observed path. Paths are absolute, without links on the way.
public enum ContainerChange: Hashable, Sendable {
  /// It is there now and was not before: made, copied, imported, delivered, or moved here from elsewhere. Everything that appears with
  /// a directory is told by itself, parents first.
  case created(path: String)
  /// Its contents are others: written through a handle, or replaced by another file in one step.
  case changed(path: String)
  /// Dates, permissions, extended attributes, or the number of its links. What a directory's dates owe to changes in it is not told.
  case attributesChanged(path: String)
  /// It has another path, with everything in it. Nothing is at the new path then that was there before.
  case moved(from: String, to: String)
  /// It is gone, or not at or below the observed path any more, with everything in it, which is not told.
  case removed(path: String)
  /// More changes waited than may, or they could not be told: what was dropped is unknown, and the observer must look anew.
  case overflowed

  /// Where it is now, or was when it was removed; nil for ``overflowed``.
  public var path: String? {
    switch self {
    case .created(let path), .changed(let path), .attributesChanged(let path), .removed(let path): path
    case .moved(_, let path): path
    case .overflowed: nil
    }
  }
}
