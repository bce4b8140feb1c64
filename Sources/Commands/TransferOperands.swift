import ArgumentParser

/// The operands of `put` and `get`: a place in a container and a native path, the container as
/// `DIR` and `PATH` or as `CONTAINER:/path`.
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

  /// `DIR PATH [LOCAL]`, or `CONTAINER:/path [LOCAL]`.
  init(get operands: [String]) throws {
    guard let first = operands.first else {
      throw ValidationError("Give DIR PATH [LOCAL], or CONTAINER:/path [LOCAL].")
    }
    var rest = operands.dropFirst()
    if let address = ContainerAddress(first), !ContainerAddress.isContainer(at: first) {
      (directory, path) = (address.directory, address.path)
    } else {
      directory = first
      path = try rest.popFirst().map { try ContainerAddress.path($0, in: first, isStrict: true) } ?? "/"
    }
    if rest.isEmpty, path.allSatisfy({ $0 == "/" }) {
      throw ValidationError(
        "Say where everything is to go: dynamics get \(PrintableText.of(directory)) / FOLDER"
          + " (. is the current folder, where files of the same names are replaced).")
    }
    local = rest.popFirst() ?? "."
    guard rest.isEmpty else { throw ValidationError("Give one LOCAL at most.") }
  }
}
