import ArgumentParser

/// The meaning of the operands of `mv`: paths in one container.
struct MoveForm: Equatable {
  var directory: String
  var sources: [String]
  var target: String

  /// Throws `ValidationError` when what is moved would leave its container.
  init(_ operands: [String]) throws {
    guard let last = operands.last, operands.count >= 2 else {
      throw ValidationError("Give what to move, and where to.")
    }
    let hasAddress = operands.contains { ContainerAddress($0) != nil }
    if operands.count == 3, !hasAddress || ContainerAddress.isContainer(at: operands[0]) {
      directory = operands[0]
      sources = [try ContainerAddress.path(operands[1], in: directory)]
      target = try ContainerAddress.path(operands[2], in: directory)
      return
    }
    guard hasAddress else {
      throw ValidationError("Give DIR FROM TO, or each as CONTAINER:/path; native files are moved by mv(1).")
    }
    let addresses = try operands.map { operand in
      guard let address = ContainerAddress(operand) else {
        throw ValidationError(
          "'\(PrintableText.of(operand))' is not CONTAINER:/path, and what is moved stays in its container: "
            + "copy it with cp, then remove it with rm.")
      }
      return address
    }
    guard let place = ContainerAddress(last), addresses.allSatisfy({ $0.isInContainer(of: place) }) else {
      throw ValidationError(
        "What is moved stays in its container; to another one copy it with cp, then remove it with rm.")
    }
    (directory, target) = (place.directory, place.path)
    sources = addresses.dropLast().map(\.path)
  }
}
