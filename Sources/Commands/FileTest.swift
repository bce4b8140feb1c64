import ArgumentParser
import ContainerStore

/// The value of `-size`.
struct SizeTest: ExpressibleByArgument {
  private var comparison: Comparison
  private var unit: UInt64 = 512

  init?(argument: String) {
    let units: [Character: UInt64] = ["b": 512, "c": 1, "k": 1 << 10, "M": 1 << 20, "G": 1 << 30]
    var number = argument[...]
    if let letter = number.last, let unit = units[letter] {
      self.unit = unit
      number.removeLast()
    }
    guard let comparison = Comparison(number) else { return nil }
    self.comparison = comparison
  }

  func holds(for byteCount: UInt64) -> Bool {
    let units = byteCount / unit + (byteCount % unit == 0 ? 0 : 1)
    return comparison.holds(for: Int64(clamping: units))
  }
}

/// The value of `-mtime` and `-mmin`.
struct AgeTest: ExpressibleByArgument {
  private var comparison: Comparison

  init?(argument: String) {
    guard let comparison = Comparison(argument[...]) else { return nil }
    self.comparison = comparison
  }

  /// Whole units of so many seconds between a date and now, both in nanoseconds.
  func holds(for date: Int64, now: Int64, unitSeconds: Int64) -> Bool {
    let (age, overflows) = now.subtractingReportingOverflow(date)
    let clamped = overflows ? (date > 0 ? Int64.min : .max) : age
    let unit = unitSeconds * 1_000_000_000
    // Rounded down, also before zero: what lies in the future is less than no days old.
    let units = clamped / unit - (clamped % unit < 0 ? 1 : 0)
    return comparison.holds(for: units)
  }
}

/// The value of `-type`: one letter or several between commas.
struct TypeTest: ExpressibleByArgument {
  private var kinds: [FileKind] = []

  init?(argument: String) {
    for letter in argument.split(separator: ",", omittingEmptySubsequences: false) {
      switch letter {
      case "f": kinds.append(.file)
      case "d": kinds.append(.directory)
      case "l": kinds.append(.symbolicLink)
      default: return nil
      }
    }
  }

  func holds(for kind: FileKind) -> Bool { kinds.contains(kind) }
}
