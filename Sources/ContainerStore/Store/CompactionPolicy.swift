/// The amount of waste above which copying is worthwhile.
struct CompactionPolicy {
  /// Tolerated waste as a share of the live bytes in all slabs.
  var wasteFraction: Double
  /// Tolerated waste regardless of the live bytes.
  var wasteByteCountMin: UInt64
  /// Tolerated waste of one slab as a share of the bytes that it takes on the disk.
  var slabWasteFraction: Double
  /// The maximum number of bytes that one compaction copies.
  var copiedByteCountMax: UInt64
  /// The minimum gain for each moved run, since a moved run costs a record of the catalog.
  var wasteByteCountMinPerRun: UInt64 = 0

  /// Whether everything that was removed leaves the catalog too, which is written as a whole then.
  var mergesCatalog = false

  /// The policy on request.
  static let thorough = CompactionPolicy(
    wasteFraction: 0, wasteByteCountMin: 64 << 10, slabWasteFraction: 0.02, copiedByteCountMax: .max,
    mergesCatalog: true)

  /// The policy at closing: a container that is not large is left compact, and a large one does not
  /// delay its caller.
  static func closing(liveByteCount: UInt64) -> CompactionPolicy {
    let isLarge = liveByteCount > 256 << 20
    return CompactionPolicy(
      wasteFraction: isLarge ? 0.25 : 0.02, wasteByteCountMin: 256 << 10,
      slabWasteFraction: isLarge ? 0.5 : 0.02,
      copiedByteCountMax: isLarge ? 32 << 20 : 256 << 20, wasteByteCountMinPerRun: 100)
  }

  /// The policy while the container is in use.
  static func background(_ options: ContainerOptions) -> CompactionPolicy {
    CompactionPolicy(
      wasteFraction: 0.15, wasteByteCountMin: options.backgroundWasteByteCountMin, slabWasteFraction: 0.15,
      copiedByteCountMax: .max)
  }

  /// The waste above which a compaction begins.
  func wasteByteCountMax(liveByteCount: UInt64) -> UInt64 {
    max(wasteByteCountMin, UInt64(Double(liveByteCount) * wasteFraction))
  }
}
