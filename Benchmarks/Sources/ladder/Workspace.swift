import ContainerStore
import Foundation
import SodiumPrimitives

/// A directory of our own below the one that was asked for, and what is made in it.
struct Workspace {
  let path: String
  private let waitsForHost: Bool

  init(in directory: String?, waitsForHost: Bool) throws {
    self.waitsForHost = waitsForHost
    let parent = directory ?? FileManager.default.temporaryDirectory.path
    path = URL(fileURLWithPath: parent).appendingPathComponent("ladder-\(UUID().uuidString)").path
    try FileManager.default.createDirectory(atPath: path, withIntermediateDirectories: false)
  }

  func remove() { try? FileManager.default.removeItem(atPath: path) }

  func place(_ name: String) -> String { path + "/" + name }

  func remove(_ name: String) throws { try FileManager.default.removeItem(atPath: place(name)) }

  /// A file that no layer can compress: key stream under a fresh key for each MiB.
  func makeIncompressibleFile(_ name: String, byteCount: Int) throws {
    let file = place(name)
    try Data().write(to: URL(fileURLWithPath: file))
    let handle = try FileHandle(forWritingTo: URL(fileURLWithPath: file))
    defer { try? handle.close() }
    let buffer = Buffer(byteCount: min(byteCount, 1 << 20))
    var done = 0
    while done < byteCount {
      let count = min(buffer.bytes.count, byteCount - done)
      buffer.fillIncompressibly()
      try handle.write(
        contentsOf: Data(bytesNoCopy: buffer.bytes.baseAddress!, count: count, deallocator: .none))
      done += count
    }
  }

  /// A new container. Its key is known to everybody: nothing of value is ever in it.
  func makeContainer(_ name: String, _ durability: Container.Durability) throws -> Container {
    try Self.create(place(name), durability)
  }

  static func create(_ path: String, _ durability: Container.Durability) throws -> Container {
    var options = Container.Options()
    options.durability = durability
    return try Container.create(at: path, credential: try credential(), options: options)
  }

  static func open(_ path: String, _ mode: Container.Mode) throws -> Container {
    try Container.open(at: path, credential: try credential(), mode: mode)
  }

  private static func credential() throws -> Credential {
    try .rawKey(SecretBytes(count: Credential.rawKeyByteCount))
  }

  /// Reads every file below `name`, or the file itself, so that it stands in the page cache.
  private func warm(_ name: String) throws {
    var files = [place(name)]
    if let below = FileManager.default.enumerator(atPath: place(name)) {
      files += below.compactMap { $0 as? String }.map { place(name) + "/" + $0 }
    }
    let buffer = Buffer(byteCount: 1 << 20)
    for file in files {
      let descriptor = Foundation.open(file, O_RDONLY)
      guard descriptor >= 0 else { continue }
      defer { close(descriptor) }
      while read(descriptor, buffer.bytes.baseAddress!, buffer.bytes.count) > 0 {}
    }
  }

  /// Blocks that a directory and everything in it take, in bytes.
  func diskByteCount(_ name: String) throws -> Int {
    var paths = [place(name)]
    if let below = FileManager.default.enumerator(atPath: place(name)) {
      paths += below.compactMap { $0 as? String }.map { place(name) + "/" + $0 }
    }
    return paths.reduce(0) { sum, path in
      var status = stat()
      guard lstat(path, &status) == 0 else { return sum }
      return sum + Int(status.st_blocks) * 512
    }
  }

  /// Brings the machine to the same state before each time: `source` in the page cache, nothing left to write back on this
  /// file system, and memory at hand for a target of `byteCount` bytes.
  ///
  /// A virtual machine with free page reporting gives memory to its host two seconds after it was freed, and getting it
  /// back takes longer than many a case. So memory is taken and held until what was freed before has been reported, and
  /// freed at the last moment.
  func prepare(source: String, byteCount: Int) throws {
    try warm(source)
    try Child.run("sync", ["--file-system", path])
    let memory = mmap(nil, byteCount, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
    guard let memory, memory != MAP_FAILED else { return }
    for offset in stride(from: 0, to: byteCount, by: 4096) {
      memory.storeBytes(of: 1, toByteOffset: offset, as: UInt8.self)
    }
    if waitsForHost { Thread.sleep(forTimeInterval: 3) }
    munmap(memory, byteCount)
  }
}

/// Page-aligned memory that goes with its owner.
final class Buffer {
  let bytes: UnsafeMutableRawBufferPointer

  init(byteCount: Int) { bytes = .allocate(byteCount: byteCount, alignment: 4096) }

  deinit { bytes.deallocate() }

  func fillIncompressibly() {
    Random.bytes(32).withUnsafeBytes { KeyedHash.keyStream(key: $0, into: bytes) }
  }
}
