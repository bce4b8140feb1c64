import ContainerStore

/// A file of the runtime inside the container, beside those of the services.
enum RuntimeFile: String {
  /// The highest serial of a management file that was accepted while the container was open.
  case managed
  /// Hashes of former passwords, the newest first, one a line.
  case passwords

  private static let directory = "/.opendynamics"
  private var path: String { "\(Self.directory)/\(rawValue)" }

  /// Nil when there is none.
  func text(in store: Container) throws -> String? {
    guard try store.attributes(at: path) != nil else { return nil }
    return String(decoding: try store.contents(at: path), as: UTF8.self)
  }

  /// Replaces the file durably.
  func write(_ text: String, in store: Container) throws {
    try store.createDirectory(Self.directory, withIntermediateDirectories: true)
    try Array(text.utf8).withUnsafeBytes { try store.write($0, to: path) }
    try store.synchronize()
  }
}
