import ArgumentParser

/// The meaning of the operands of `cp`.
enum CopyForm: Equatable {
  case inside(directory: String, from: String, to: String)
  case into([CopyOperand], ContainerAddress)
  case outOf([ContainerAddress], String)

  init(_ operands: [String]) throws {
    guard operands.count >= 2 else { throw ValidationError("Give what to copy, and where to.") }
    let hasAddress = operands.contains { ContainerAddress($0) != nil }
    if operands.count == 3, !hasAddress || ContainerAddress.isContainer(at: operands[0]) {
      let paths = try operands.dropFirst().map { try ContainerAddress.path($0, in: operands[0]) }
      if ["."[...], ".."].contains(paths[1].prefix { $0 != "/" }) {
        let (directory, from) = (PrintableText.of(operands[0]), PrintableText.of(paths[0]))
        throw ValidationError(
          "This copies inside the container. To copy out of it: dynamics cp \(directory):\(from) \(PrintableText.of(paths[1]))"
        )
      }
      self = .inside(directory: operands[0], from: paths[0], to: paths[1])
      return
    }
    guard hasAddress else {
      throw ValidationError("One operand at least is CONTAINER:/path; native files are copied by cp(1).")
    }
    let all = try operands.map(CopyOperand.init)
    let sources = Array(all.dropLast())
    let addresses = sources.compactMap(\.address)
    guard addresses.allSatisfy({ $0.directory.utf8.elementsEqual(addresses[0].directory.utf8) }) else {
      throw ValidationError("What is copied comes from one container at a time.")
    }
    switch all[all.count - 1] {
    case .container(let target): self = .into(sources, target)
    case .native(let local):
      guard addresses.count == sources.count else {
        throw ValidationError("One operand at least is CONTAINER:/path; native files are copied by cp(1).")
      }
      self = .outOf(addresses, local)
    }
  }
}
