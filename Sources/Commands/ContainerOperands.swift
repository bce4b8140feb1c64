import ArgumentParser

/// The operands of a command: one container and paths in it, given as `DIR PATH…` or each as
/// `CONTAINER:/path`.
struct ContainerOperands {
  var directory: String
  var paths: [String]

  /// Throws `ValidationError` when a place is followed by something that is none of the same
  /// container.
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
