import ContainerStore
import Foundation

/// One large file into a container and out of it, without a barrier, so that the disk's speed stays out of the figures.
struct ContainerRung {
  let bench: Bench

  private static let file = "/large"

  func measure() throws {
    let workspace = bench.workspace
    try workspace.makeIncompressibleFile("plain", byteCount: bench.size)
    let source = try workspace.makeContainer("source", .grouped)
    defer { try? source.close() }
    try source.importItem(at: workspace.place("plain"), to: Self.file)
    try source.synchronize()
    let cases = [
      Case("importItem, fresh container, no barrier", byteCount: bench.size, once: importOnce),
      Case("exportItem, same file system, no barrier", byteCount: bench.size) { try exportOnce(source) },
      Case("Container.read, one thread", byteCount: bench.size) { try readOnce(source) },
    ]
    bench.add(try alternating(cases, repetitions: bench.repetitions))
    try source.close()
    for name in ["plain", "source"] { try workspace.remove(name) }
  }

  private func importOnce() throws -> Double {
    let workspace = bench.workspace
    let target = try workspace.makeContainer("target", .none)
    try workspace.prepare(source: "plain", byteCount: bench.size + bench.size / 8)
    let time = try seconds { try target.importItem(at: workspace.place("plain"), to: Self.file) }
    try target.close()
    try workspace.remove("target")
    return time
  }

  private func exportOnce(_ source: Container) throws -> Double {
    let workspace = bench.workspace
    try workspace.prepare(source: "source", byteCount: bench.size + bench.size / 8)
    let time = try seconds { try source.exportItem(Self.file, to: workspace.place("exported")) }
    try workspace.remove("exported")
    return time
  }

  private func readOnce(_ source: Container) throws -> Double {
    try bench.workspace.prepare(source: "source", byteCount: 1 << 20)
    var count = 0
    let time = try seconds { try source.read(Self.file) { count += $0.count } }
    precondition(count == bench.size, "the whole file was read")
    return time
  }
}
