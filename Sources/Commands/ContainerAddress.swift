import ArgumentParser

/// `CONTAINER:/path`: a place in a container, where a native path could stand too (Documentation/CLI.md). `CONTAINER:` is its root.
struct ContainerAddress: Equatable {
  var directory: String
  var path: String

  /// The first `:/` divides, else a colon at the end; nil when there is none with something before it.
  init?(_ operand: String) {
    // Byte by byte: Swift's characters would join a slash with a combining mark behind it.
    let bytes = Array(operand.utf8)
    let (colon, slash) = (UInt8(ascii: ":"), UInt8(ascii: "/"))
    let cut = bytes.indices.dropFirst().first { i in
      bytes[i] == colon && (i == bytes.count - 1 || bytes[i + 1] == slash)
    }
    guard let cut else { return nil }
    directory = String(decoding: bytes[..<cut], as: UTF8.self)
    path = cut == bytes.count - 1 ? "/" : String(decoding: bytes[(cut + 1)...], as: UTF8.self)
  }

  /// Whether both are in one directory, however it is spelled. One that is missing is another.
  func isInContainer(of other: ContainerAddress) -> Bool { isIn(other.directory) }

  private func isIn(_ other: String) -> Bool {
    directory.utf8.elementsEqual(other.utf8) || (try? NativeFile.isSame(directory, other)) == true
  }

  /// A path in the container `directory`, which may also be written as a place in it. Throws `ValidationError` for a place in another
  /// one and, when `isStrict`, for a relative path that could be meant as such.
  static func path(_ operand: String, in directory: String, isStrict: Bool = false) throws -> String {
    guard let address = ContainerAddress(operand) else { return operand }
    if address.isIn(directory) { return address.path }
    let text = PrintableText.of(operand)
    if isContainer(at: address.directory) {
      throw ValidationError("'\(text)' is not in the container \(PrintableText.of(directory)).")
    }
    let isRelative = operand.utf8.first != UInt8(ascii: "/")
    if isStrict, isRelative, !operand.utf8.elementsEqual((address.directory + ":").utf8) {
      throw ValidationError(
        "There is no container '\(PrintableText.of(address.directory))'; a path in \(PrintableText.of(directory)) is written /\(text)."
      )
    }
    return operand
  }

  /// Whether a container is at a native path, as far as names tell.
  static func isContainer(at native: String) -> Bool {
    (try? NativeKind(at: PathText.joined(native, "superblock"))) == .file
  }
}
