import ArgumentParser

/// The words behind the program's name.
struct CommandArguments {
  /// Their `-h` is an option, as ls(1) and du(1) have it.
  private static let commandsWithOwnH: [any ParsableCommand.Type] = [ListCommand.self, DiskUsageCommand.self]

  let words: [String]

  /// Takes the word `-h` in front of `--` for `--help`. ArgumentParser would take the letter for it, and every name that begins with a
  /// dash and has an h for a request for help, which ends with 0.
  init(_ words: [String]) {
    let hasOwnH = Self.commandsWithOwnH.contains { $0.configuration.commandName == words.first }
    let end = hasOwnH ? words.startIndex : words.firstIndex(of: "--") ?? words.endIndex
    // A word behind an option of find is its value.
    let takesValues = words.first == FindCommand.configuration.commandName
    self.words = words.indices.map { i in
      let isValue = takesValues && i > 0 && words[i - 1].utf8.first == UInt8(ascii: "-")
      return i < end && words[i] == "-h" && !isValue ? "--help" : words[i]
    }
  }

  /// Throws `ValidationError` for no command, which ArgumentParser takes for a wish for help and a success, and for a word that is
  /// no command, where it would count arguments.
  func parse() throws -> any ParsableCommand {
    try checkCommand()
    return try DynamicsCommand.parseAsRoot(words)
  }

  private func checkCommand() throws {
    let (command, rest) = Self.command(of: words.first == "help" ? words.dropFirst() : words[...])
    guard !command.configuration.subcommands.isEmpty else { return }
    let path = command == DynamicsCommand.self ? "" : " " + (command.configuration.commandName ?? "")
    if rest.isEmpty, words.first != "help" {
      throw ValidationError("name a command of 'dynamics\(path)'; 'dynamics help\(path)' lists them")
    }
    guard let word = rest.first, word != "help", word.utf8.first != UInt8(ascii: "-") else { return }
    let groups = DynamicsCommand.configuration.subcommands.filter { Self.subcommand(word, of: $0) != nil }
    let others = groups.map { "dynamics \($0.configuration.commandName ?? "") \(word)" }
    throw ValidationError(
      "there is no command 'dynamics\(path) \(PrintableText.of(word))'; "
        + (others.isEmpty
          ? "'dynamics help\(path)' lists them" : "there is '\(others.joined(separator: "', '"))'"))
  }

  /// The command that the first words name, and the words behind its name.
  private static func command(
    of words: ArraySlice<String>
  ) -> (type: any ParsableCommand.Type, rest: ArraySlice<String>) {
    var (command, rest): (any ParsableCommand.Type, ArraySlice<String>) = (DynamicsCommand.self, words)
    while let word = rest.first, let next = subcommand(word, of: command) {
      command = next
      rest = rest.dropFirst()
    }
    return (command, rest)
  }

  private static func subcommand(
    _ name: String, of command: any ParsableCommand.Type
  ) -> (any ParsableCommand.Type)? {
    command.configuration.subcommands.first { $0.configuration.commandName == name }
  }

  /// A line of help for a usage error that may come from a name with a leading dash; empty when no word in front of `--` can be one.
  func hint() -> String {
    let help = DynamicsCommand.helpMessage(for: Self.command(of: words[...]).type)
    let options = Set(help.split { !$0.isLetter && !$0.isNumber && $0 != "-" })
    let isStray = words.prefix { $0 != "--" }.contains { word in
      word.utf8.count > 1 && word.utf8.first == UInt8(ascii: "-")
        && !options.contains(word.prefix { $0 != "=" })
    }
    return isStray
      ? "A name that begins with a dash stands behind --, as in: dynamics put notes -- -name.txt /\n" : ""
  }
}
