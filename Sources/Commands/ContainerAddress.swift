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

/// What a command works on: one container and paths in it, given as `DIR PATH…` or each as `CONTAINER:/path`.
struct ContainerOperands {
  var directory: String
  var paths: [String]

  /// Throws `ValidationError` when a place is followed by something that is none of the same container.
  init(_ first: String, _ others: [String]) throws {
    guard let address = ContainerAddress(first), !ContainerAddress.isContainer(at: first) else {
      directory = first
      paths = try others.map { try ContainerAddress.path($0, in: first) }
      return
    }
    directory = address.directory
    paths = [address.path]
    for operand in others {
      guard let other = ContainerAddress(operand), other.isInContainer(of: address)
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

/// The operands of `put` and `get`: a place in a container and a native path, the container as `DIR` and `PATH` or as
/// `CONTAINER:/path`.
struct TransferOperands: Equatable {
  var directory: String
  var path: String
  var local: String

  /// `DIR LOCAL [PATH]`, or `LOCAL CONTAINER:/path`.
  init(put operands: [String]) throws {
    guard (2...3).contains(operands.count) else {
      throw ValidationError("Give DIR LOCAL [PATH], or LOCAL CONTAINER:/path.")
    }
    if operands.count == 2, !ContainerAddress.isContainer(at: operands[0]),
      let address = ContainerAddress(operands[1])
    {
      (directory, path, local) = (address.directory, address.path, operands[0])
      return
    }
    (directory, local) = (operands[0], operands[1])
    path = try operands.count == 3 ? ContainerAddress.path(operands[2], in: directory, isStrict: true) : "/"
  }

  /// `DIR [PATH [LOCAL]]`, or `CONTAINER:/path [LOCAL]`.
  init(get operands: [String]) throws {
    guard let first = operands.first else {
      throw ValidationError("Give DIR [PATH [LOCAL]], or CONTAINER:/path [LOCAL].")
    }
    var rest = operands.dropFirst()
    if let address = ContainerAddress(first), !ContainerAddress.isContainer(at: first) {
      (directory, path) = (address.directory, address.path)
    } else {
      directory = first
      path = try rest.popFirst().map { try ContainerAddress.path($0, in: first, isStrict: true) } ?? "/"
    }
    local = rest.popFirst() ?? "."
    guard rest.isEmpty else { throw ValidationError("Give one LOCAL at most.") }
  }
}

/// The operands of `ln`: `DIR TARGET [PATH]`, or `TARGET CONTAINER:/path`, where a target that is a file is written as a place, too.
struct LinkOperands: Equatable {
  var directory: String
  var target: String
  var path: String

  /// The target of a symbolic link is a text, unless it is a place in the container.
  init(_ operands: [String], symbolic: Bool) throws {
    let usage = "Give DIR TARGET [PATH], or TARGET CONTAINER:/path."
    guard (2...3).contains(operands.count) else { throw ValidationError(usage) }
    let last = ContainerAddress(operands[operands.count - 1])
    if operands.count == 2, let last, !ContainerAddress.isContainer(at: operands[0]) {
      (directory, path) = (last.directory, last.path)
      let address = ContainerAddress(operands[0])
      guard symbolic || address != nil else { throw ValidationError(usage) }
      target = try Self.target(operands[0], in: directory, symbolic: symbolic)
      return
    }
    directory = operands[0]
    target = try Self.target(operands[1], in: directory, symbolic: symbolic)
    path = try operands.count == 3 ? ContainerAddress.path(operands[2], in: directory, isStrict: true) : "/"
  }

  private static func target(_ operand: String, in directory: String, symbolic: Bool) throws -> String {
    do { return try ContainerAddress.path(operand, in: directory, isStrict: true) } catch {
      guard symbolic else { throw error }
      return operand
    }
  }
}
