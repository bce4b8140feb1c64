import ArgumentParser

/// One word of `cp`'s: a native path, or a place in a container.
enum CopyOperand: Equatable {
  case native(String)
  case container(ContainerAddress)

  /// Throws `ValidationError` for a name with a colon that could be meant either way.
  init(_ operand: String) throws {
    if let address = ContainerAddress(operand) {
      self = .container(address)
      return
    }
    let first = operand.utf8.first { $0 == UInt8(ascii: ":") || $0 == UInt8(ascii: "/") }
    guard first != UInt8(ascii: ":") else {
      let name = PrintableText.of(operand)
      throw ValidationError(
        "'\(name)' is a native file as './\(name)', and a place in a container as CONTAINER:/path.")
    }
    self = .native(operand)
  }

  var address: ContainerAddress? {
    if case .container(let address) = self { address } else { nil }
  }
}
