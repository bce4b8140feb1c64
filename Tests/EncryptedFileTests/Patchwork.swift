import EncryptedFile
import SodiumPrimitives
import TestSupport

/// Files as long use makes them: runs of several sessions in any order and any slab, short segments in the middle, holes.
enum Patchwork {
  static func make(
    seed: UInt64, grainCount: Int, slabCount: Int, backend: CipherBackend = .preferred
  ) throws -> StoredFile {
    let grain = SegmentLayout.plaintextByteCountMax
    let file = StoredFile()
    let cipher = SegmentCipher(backend)
    var random = SplitMix64(seed: seed)
    let contents = deterministicBytes(grainCount * grain, seed: seed)
    let sessions = (0..<3).map { _ in Identifier.random() }
    var counters: [UInt64] = [1, 1 << 40, UInt64.max - 100_000]
    var runs: [(start: Int, byteCount: Int)] = []
    var position = random.below(3)
    while position < grainCount {
      let count = min(random.oneIn(4) ? 60 + random.below(80) : 1 + random.below(6), grainCount - position)
      let lastLength = random.oneIn(3) ? grain : 1 + random.below(grain)
      runs.append((position, (count - 1) * grain + lastLength))
      position += count + (random.oneIn(2) ? 0 : random.below(random.oneIn(5) ? 80 : 4))
    }
    runs.shuffle(using: &random)
    for run in runs {
      let session = random.below(sessions.count)
      let slab = UInt32(random.below(slabCount))
      file.slabs[slab, default: []] += deterministicBytes(random.below(100), seed: UInt64(run.start))
      try file.storeRun(
        Array(contents[run.start * grain..<run.start * grain + run.byteCount]), index: UInt64(run.start),
        number: WriteNumber(session: sessions[session], counter: counters[session]), slab: slab, by: cipher)
      counters[session] += UInt64(run.byteCount / grain + 1 + random.below(3))
    }
    // Sometimes a hole at the end.
    let tail = random.oneIn(2) ? 0 : random.below(3 * grain)
    file.contents += [UInt8](repeating: 0, count: tail)
    file.size += UInt64(tail)
    return file
  }
}
