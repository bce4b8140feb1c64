#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

/// Errors that leave other files readable.
extension ContainerError {
  /// Whether names may be among what is damaged.
  package var isOfNames: Bool {
    let file = (cause as? IOFailure)?.file ?? ""
    return code == .tableDamaged || CopiedFile.isName(file)
  }

  /// Whether the error concerns the contents at one path only: other files may be whole.
  public var isDamage: Bool {
    switch code {
    case .fileDamaged, .tableDamaged, .catalogDamaged: true
    // A bad sector under a slab, or a slab that is missing, damaged itself, or no regular file.
    case .ioFailed:
      circumstance == .usual && (cause as? IOFailure).map { $0.isReading && $0.isOfFile } ?? false
    default: false
    }
  }

  /// Whether the native file system takes everything but this one item.
  var isRefusal: Bool { isOfSource && ![EIO, EROFS].contains((cause as? IOFailure)?.errno) }

  /// Whether this one native item cannot be read or stored, and others can.
  var isOfSource: Bool {
    guard circumstance == .native, code != .diskFull, code != .cancelled else { return false }
    return switch (cause as? IOFailure)?.errno {
    case EMFILE, ENFILE, ENOMEM: false
    default: true
    }
  }
}
