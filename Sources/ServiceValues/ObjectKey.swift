/// The rule for keys of objects. A dictionary hashes and compares them in their normal form, and sorting a run of combining marks costs the
/// square of its length: a key of 128 KiB would take seconds.
package enum ObjectKey {
  /// Marks in a row. Source: Unicode Standard Annex 15, "Stream-Safe Text Format".
  static let markCountMax = 30

  /// What keeps `key` from being the key of an object; nil if nothing does. To be asked before the key is hashed.
  package static func fault(in key: String) -> String? {
    var count = 0
    for scalar in key.unicodeScalars {
      // No mark has a lower number.
      guard scalar.value >= 0x300, scalar.properties.canonicalCombiningClass != .notReordered else {
        count = 0
        continue
      }
      count += 1
      if count > markCountMax { return "a key with more than \(markCountMax) combining marks in a row" }
    }
    return nil
  }
}
