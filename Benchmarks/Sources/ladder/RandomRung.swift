import ContainerStore
import Foundation

/// Random reads and writes of 4 KiB in one large file of a container, one thread. `Scripts/bench` has the same beside other stores.
struct RandomRung {
  let bench: Bench

  private static let blockByteCount = 4096
  private static let file = "/large"

  func measure() throws {
    let workspace = bench.workspace
    try workspace.makeIncompressibleFile("plain", byteCount: bench.size)
    let container = try workspace.makeContainer("random", .grouped)
    try container.importItem(at: workspace.place("plain"), to: Self.file)
    try container.synchronize()
    let byteCount = bench.randomCount * Self.blockByteCount
    bench.add(
      try alternating(
        [
          Case("\(bench.randomCount) random reads of 4 KiB", byteCount: byteCount) { try read(container) },
          Case("\(bench.randomCount) random writes of 4 KiB, synchronized", byteCount: byteCount) {
            try write(container)
          },
        ], repetitions: bench.repetitions))
    try container.close()
    for name in ["plain", "random"] { try workspace.remove(name) }
  }

  private func offsets() -> [Int] {
    let blocks = bench.size / Self.blockByteCount
    return (0..<bench.randomCount).map { _ in Int.random(in: 0..<blocks) * Self.blockByteCount }
  }

  private func read(_ container: Container) throws -> Double {
    let offsets = offsets()
    let buffer = Buffer(byteCount: Self.blockByteCount)
    let file = try container.openFile(Self.file, .read)
    defer { try? file.close() }
    return try seconds {
      for offset in offsets where try file.read(at: UInt64(offset), into: buffer.bytes) != Self.blockByteCount
      {
        fatalError("a short read")
      }
    }
  }

  private func write(_ container: Container) throws -> Double {
    let offsets = offsets()
    let buffer = Buffer(byteCount: Self.blockByteCount)
    buffer.fillIncompressibly()
    let file = try container.openFile(Self.file, .readWrite)
    defer { try? file.close() }
    return try seconds {
      for offset in offsets { try file.write(UnsafeRawBufferPointer(buffer.bytes), at: UInt64(offset)) }
      try file.synchronize()
    }
  }
}
