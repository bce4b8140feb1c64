/// Errors that leave other files readable.
extension ContainerError {
  /// Whether the error concerns the contents at one path only: other files may be whole.
  public var isDamage: Bool {
    switch code {
    case .fileDamaged, .tableDamaged, .catalogDamaged: true
    // A bad sector under a slab, or a slab that is missing or is no regular file.
    case .ioFailed: circumstance == .usual && fileFault.contains((cause as? IOFailure)?.errno ?? 0)
    default: false
    }
  }
}
