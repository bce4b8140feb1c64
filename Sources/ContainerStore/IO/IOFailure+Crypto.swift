import SodiumPrimitives

extension IOFailure {
  /// The failure of a use after the end: it says nothing of the file.
  static func closed(_ path: String) -> IOFailure { IOFailure("use", path, errno: closedFile) }

  /// For keys that were wiped while a file was read: nothing is known of the file. Nil for any other error.
  init?(_ error: CryptoError) {
    guard error == .keysWiped else { return nil }
    self = .closed("a container")
  }
}
