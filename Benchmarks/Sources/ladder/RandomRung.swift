import ContainerStore
import Foundation

/// Random reads and writes of 4 KiB in one large file, one thread: through an open file of a container, and, where securefs is
/// installed and may be mounted, through its mount in the same way.
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
    let mount = try SecureFSMount(in: workspace, plain: "plain")
    defer { mount?.unmount() }
    let cases: [(name: String, ours: () throws -> Double, theirs: (() throws -> Double)?)] = [
      (
        "\(bench.randomCount) random reads of 4 KiB", { try read(container) },
        mount.map { mount in { try self.read(mount.file) } }
      ),
      (
        "\(bench.randomCount) random writes of 4 KiB, synchronized", { try write(container) },
        mount.map { mount in { try self.write(mount.file) } }
      ),
    ]
    for item in cases {
      let bytes = bench.randomCount * Self.blockByteCount
      var both = [Case("container: \(item.name)", byteCount: bytes, once: item.ours)]
      if let theirs = item.theirs {
        both.append(Case("securefs: \(item.name)", byteCount: bytes, once: theirs))
      }
      let series = try alternating(both, repetitions: bench.repetitions)
      bench.add(series)
      if series.count == 2 {
        bench.add(Ratio("container / securefs: \(item.name)", subject: series[0], baseline: series[1]))
      }
    }
    if mount == nil { print("securefs is not installed, or may not be mounted here: no comparison") }
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

  private func read(_ path: String) throws -> Double {
    let offsets = offsets()
    let buffer = Buffer(byteCount: Self.blockByteCount)
    let descriptor = open(path, O_RDONLY)
    guard descriptor >= 0 else { fatalError("the mount does not open") }
    defer { close(descriptor) }
    // What the kernel has of the mounted file would be no work for anybody.
    posix_fadvise(descriptor, 0, 0, POSIX_FADV_DONTNEED)
    posix_fadvise(descriptor, 0, 0, POSIX_FADV_RANDOM)
    return seconds {
      for offset in offsets
      where pread(descriptor, buffer.bytes.baseAddress, Self.blockByteCount, offset) != Self.blockByteCount {
        fatalError("a short read")
      }
    }
  }

  private func write(_ path: String) throws -> Double {
    let offsets = offsets()
    let buffer = Buffer(byteCount: Self.blockByteCount)
    buffer.fillIncompressibly()
    let descriptor = open(path, O_RDWR)
    guard descriptor >= 0 else { fatalError("the mount does not open") }
    defer { close(descriptor) }
    return seconds {
      for offset in offsets
      where pwrite(descriptor, buffer.bytes.baseAddress, Self.blockByteCount, offset) != Self.blockByteCount {
        fatalError("a short write")
      }
      fsync(descriptor)
    }
  }
}

/// A securefs store (full format) with one file in it, mounted.
final class SecureFSMount {
  let file: String
  private let directory: String

  init?(in workspace: Workspace, plain: String) throws {
    directory = workspace.place("securefs-mount")
    let store = workspace.place("securefs")
    file = directory + "/large"
    for path in [store, directory] {
      try FileManager.default.createDirectory(atPath: path, withIntermediateDirectories: false)
    }
    do {
      try Child.run("securefs", ["create", "--format", "2", "--rounds", "1", "--pass", "x", store])
      try Child.run(
        "securefs",
        ["mount", "-b", "--pass", "x", "--log", workspace.place("securefs.log"), store, directory])
    } catch { return nil }
    for _ in 0..<100 where !Self.isMounted(directory) { usleep(50_000) }
    guard Self.isMounted(directory) else { return nil }
    try Child.run("cp", [workspace.place(plain), file])
  }

  func unmount() { _ = try? Child.run("fusermount3", ["-u", directory]) }

  private static func isMounted(_ path: String) -> Bool {
    (try? String(contentsOfFile: "/proc/mounts", encoding: .utf8))?.contains(" \(path) ") == true
  }
}
