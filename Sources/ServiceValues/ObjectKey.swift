/// The rule for keys of objects. A dictionary hashes and compares them in their normal form, and making that costs the square of a run of
/// combining marks: a key of 128 KiB would take seconds.
package enum ObjectKey {
  /// Bytes of UTF-8, as for every other name.
  package static let byteCountMax = 255

  /// What keeps `key` from being the key of an object; nil if nothing does. To be asked before the key is hashed.
  package static func fault(in key: String) -> String? {
    key.utf8.count > byteCountMax ? "a key of more than \(byteCountMax) bytes" : nil
  }
}
