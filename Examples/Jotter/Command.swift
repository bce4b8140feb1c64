import Foundation

/// A task, as it was typed.
enum Command: Equatable {
  case add(String)
  case list
  case share(file: String, receiver: String)
  case serve

  static let usage = "usage: Jotter add TEXT | list | share FILE APP | serve"

  /// Reads the words behind the program's name. Nil if they are no task.
  init?(_ words: [String]) {
    switch (words.first, words.count) {
    case ("add", 2): self = .add(words[1])
    case ("list", 1): self = .list
    case ("share", 3): self = .share(file: words[1], receiver: words[2])
    case ("serve", 1): self = .serve
    default: return nil
    }
  }
}

/// Exit codes of the program.
enum ExitCode {
  static let done: Int32 = 0
  static let failed: Int32 = 1
  static let usage: Int32 = 64
  static let refused: Int32 = 69
  static let notAuthorized: Int32 = 77
}
