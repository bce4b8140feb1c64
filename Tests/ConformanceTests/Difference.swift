import Foundation

/// One line of the table of differences: what both say in a step of a case, and why it stays so. `*` in a step or a value stands
/// for any text, and then the line is for several steps.
struct Difference: Sendable {
  let `case`: String
  let step: String
  let foundation: String
  let ours: String
  let why: String
  /// How many steps it is for.
  let count: Int
  /// Root reads and writes whatever the permissions are, so that Foundation answers differently to others.
  let onlyAsRoot: Bool

  init(
    _ case: String, _ step: String, foundation: String, ours: String, count: Int = 1,
    onlyAsRoot: Bool = false,
    why: String
  ) {
    self.case = `case`
    self.step = step
    self.foundation = foundation
    self.ours = ours
    self.count = count
    self.onlyAsRoot = onlyAsRoot
    self.why = why
  }

  func covers(_ seen: Seen) -> Bool {
    seen.case == `case` && Self.matches(seen.step, step) && Self.matches(seen.foundation, foundation)
      && Self.matches(seen.ours, ours)
  }

  /// The line in Documentation/FILES.md.
  var row: String {
    let cells = ["\(`case`): \(step)", foundation, ours, why + (onlyAsRoot ? " (as root)" : "")]
    return "| " + cells.map { $0.replacingOccurrences(of: "|", with: "\\|") }.joined(separator: " | ") + " |"
  }

  /// Whether `text` is `pattern`, in which `*` is any text.
  static func matches(_ text: String, _ pattern: String) -> Bool {
    let parts = pattern.components(separatedBy: "*")
    guard parts.count > 1 else { return text == pattern }
    guard text.hasPrefix(parts[0]) else { return false }
    var rest = text.dropFirst(parts[0].count)
    for part in parts.dropFirst().dropLast() where !part.isEmpty {
      guard let found = rest.range(of: part) else { return false }
      rest = rest[found.upperBound...]
    }
    return rest.hasSuffix(parts.last ?? "")
  }

  /// A step in which two transcripts differ.
  struct Seen: CustomStringConvertible {
    let `case`: String
    let step: String
    let foundation: String
    let ours: String

    var description: String { "\(`case`): \(step)\n  Foundation: \(foundation)\n  ours:       \(ours)" }

    static let nothing = "no such step"

    static func between(_ foundation: Transcript, _ ours: Transcript, in case: String) -> [Seen] {
      let theirs = Dictionary(uniqueKeysWithValues: foundation.entries.map { ($0.step, $0.value) })
      let own = Dictionary(uniqueKeysWithValues: ours.entries.map { ($0.step, $0.value) })
      let steps = foundation.entries.map(\.step) + ours.entries.map(\.step).filter { theirs[$0] == nil }
      return steps.compactMap { step in
        let (one, other) = (theirs[step] ?? nothing, own[step] ?? nothing)
        return one == other ? nil : Seen(case: `case`, step: step, foundation: one, ours: other)
      }
    }
  }
}
