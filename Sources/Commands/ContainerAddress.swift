import ArgumentParser

/// `CONTAINER:/path`: a place in a container, where a native path could stand too (Documentation/CLI.md).
struct ContainerAddress: Equatable {
  var directory: String
  var path: String

  /// The first `:/` divides; nil when there is none with something before it.
  init?(_ operand: String) {
    // Byte by byte: Swift's characters would join a slash with a combining mark behind it.
    let bytes = Array(operand.utf8)
    let (colon, slash) = (UInt8(ascii: ":"), UInt8(ascii: "/"))
    guard
      let cut = bytes.indices.dropFirst().dropLast().first(where: {
        bytes[$0] == colon && bytes[$0 + 1] == slash
      })
    else { return nil }
    directory = String(decoding: bytes[..<cut], as: UTF8.self)
    path = String(decoding: bytes[(cut + 1)...], as: UTF8.self)
  }

  /// Whether both are in one directory, however it is spelled. One that is missing is another.
  func isInContainer(of other: ContainerAddress) -> Bool {
    directory.utf8.elementsEqual(other.directory.utf8)
      || (try? NativeFile.isSame(directory, other.directory)) == true
  }

  /// Whether a container is at a native path, as far as names tell.
  static func isContainer(at native: String) -> Bool {
    (try? NativeKind(at: PathText.joined(native, "superblock"))) == .file
  }
}

/// What a command works on: one container and paths in it, given as `DIR PATH…` or each as `CONTAINER:/path`.
struct ContainerOperands {
  var directory: String
  var paths: [String]

  /// Throws `ValidationError` when a place is followed by something that is none of the same container.
  init(_ first: String, _ others: [String]) throws {
    guard let address = ContainerAddress(first), !ContainerAddress.isContainer(at: first) else {
      (directory, paths) = (first, others)
      return
    }
    directory = address.directory
    paths = [address.path]
    for operand in others {
      guard let other = ContainerAddress(operand), other.directory.utf8.elementsEqual(address.directory.utf8)
      else {
        throw ValidationError(
          "Behind CONTAINER:/path there are only such places of the same container, not '\(PrintableText.of(operand))'."
        )
      }
      paths.append(other.path)
    }
  }

  /// At least one path.
  init(requiringPath first: String, _ others: [String]) throws {
    try self.init(first, others)
    if paths.isEmpty { throw ValidationError("Give the path of a file in the container, too.") }
  }

  /// One path at most; `/` when there is none.
  init(_ first: String, optional other: String?) throws {
    try self.init(first, other.map { [$0] } ?? [])
    guard paths.count <= 1 else { throw ValidationError("Give one path, not \(paths.count).") }
    if paths.isEmpty { paths = ["/"] }
  }

  var path: String { paths[0] }
}
