/// The program's exit codes (Documentation/CLI.md, "Exit codes"): scripts rely on them, so none ever changes its meaning.
enum ExitStatus: Equatable {
  case success
  case failure
  case damage
  case wrongKey
  case locked
  case notFound
  case inTheWay
  case diskFull
  case usage
  /// Ended on a signal.
  case signal(Int32)

  var code: Int32 {
    switch self {
    case .success: 0
    case .failure: 1
    case .damage: 2
    case .wrongKey: 3
    case .locked: 4
    case .notFound: 5
    case .inTheWay: 6
    case .diskFull: 7
    case .usage: 64  // EX_USAGE, which ArgumentParser uses
    case .signal(let number): 128 + number
    }
  }
}
