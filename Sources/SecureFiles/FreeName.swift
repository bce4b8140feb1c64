/// Names for files whose own is taken.
package enum FreeName {
  /// A number from one on that is not taken, where the one before it is. Asks for few of them, however many are taken.
  package static func number(_ isTaken: (Int) -> Bool) -> Int {
    var (taken, step) = (0, 1)
    while isTaken(taken + step) {
      taken += step
      step *= 2
    }
    var free = taken + step
    while free - taken > 1 {
      let middle = (taken + free) / 2
      if isTaken(middle) { taken = middle } else { free = middle }
    }
    return free
  }

  /// The name itself for 1, else `a-2.txt` of `a.txt`; of a name that would be too long for that, as much as fits. What begins with
  /// its only dot has no suffix.
  package static func text(_ name: String, _ number: Int) -> String {
    if number == 1 { return name }
    let dot = name.dropFirst().lastIndex(of: ".").flatMap {
      $0 == name.index(before: name.endIndex) ? nil : $0
    }
    var (stem, suffix) = dot.map { (name[..<$0], name[$0...]) } ?? (name[...], "")
    let mark = "-\(number)"
    if suffix.utf8.count > 64 { (stem, suffix) = (name[...], "") }
    while stem.utf8.count + mark.utf8.count + suffix.utf8.count > 255 { stem.removeLast() }
    return stem + mark + suffix
  }
}
