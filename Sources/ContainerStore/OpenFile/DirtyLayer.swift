import EncryptedFile
import SodiumPrimitives

/// Changes of a file on top of an older state: first everything from `cut` on is removed, then the
/// grains' bytes are written.
struct DirtyLayer: Sendable {
  var grains: [UInt64: DirtyGrain] = [:]
  /// The smallest size since the layer was created.
  var cut: UInt64 = .max
  /// Whether the layer has any change, including one of the size alone.
  var isChanged = false
  /// The time of the last change, in nanoseconds since 1970-01-01 UTC.
  var modified: Int64 = 0

  static func grain(_ offset: UInt64) -> UInt64 { offset / UInt64(DirtyGrain.byteCount) }

  /// Removes everything from `size` on.
  mutating func truncate(to size: UInt64) {
    cut = min(cut, size)
    Self.truncate(&grains, to: size)
  }

  /// Merges an older layer into this one; its bytes apply where this layer has none.
  mutating func lay(over older: DirtyLayer) {
    var merged = older.grains
    if cut < .max { Self.truncate(&merged, to: cut) }
    for (index, grain) in grains {
      if let beneath = merged[index] { beneath.write(over: grain) } else { merged[index] = grain }
    }
    grains = merged
    cut = min(cut, older.cut)
    modified = isChanged ? modified : older.modified
    isChanged = isChanged || older.isChanged
  }

  private static func truncate(_ grains: inout [UInt64: DirtyGrain], to size: UInt64) {
    guard !grains.isEmpty else { return }
    let boundary = grain(size)
    let position = Int(size % UInt64(DirtyGrain.byteCount))
    for index in grains.keys.filter({ $0 > boundary || ($0 == boundary && position == 0) }) {
      grains[index] = nil
    }
    if position > 0, let grain = grains[boundary] {
      grain.forget(from: position)
      if grain.valid.isEmpty { grains[boundary] = nil }
    }
  }
}
