import ArgumentParser

/// The operands of `ln`: `DIR TARGET [PATH]`, or `TARGET CONTAINER:/path`, where a target that is a
/// file is written as a place, too.
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
