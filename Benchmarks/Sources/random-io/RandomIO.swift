import ArgumentParser
import ContainerStore
import Foundation
import SodiumPrimitives

/// Random reads or writes of 4 KiB in one file, on one thread: of a container, or of the native file
/// system, which may be a mounted store.
@main
struct RandomIO: ParsableCommand {
  static let configuration = CommandConfiguration(commandName: "random-io")

  @Option(help: "The file: a native path, or a path in the container.")
  var file: String

  @Option(help: "The directory of a container.")
  var container: String?

  @Option(help: "The container's key, 32 bytes.")
  var keyFile: String?

  @Option(help: "How many reads or writes.")
  var count: Int

  @Flag(help: "Writes, and makes the writes durable at the end.")
  var write = false

  private static let blockByteCount = 4096

  func run() throws {
    if let container { try inContainer(container) } else { try natively() }
  }

  private func offsets(in byteCount: UInt64) -> [UInt64] {
    let blocks = byteCount / UInt64(Self.blockByteCount)
    precondition(blocks > 0, "the file has less than one block")
    return (0..<count).map { _ in UInt64.random(in: 0..<blocks) * UInt64(Self.blockByteCount) }
  }

  /// A block that cannot be compressed.
  private func block() -> UnsafeMutableRawBufferPointer {
    let bytes = UnsafeMutableRawBufferPointer.allocate(byteCount: Self.blockByteCount, alignment: 4096)
    Random.bytes(Self.blockByteCount).withUnsafeBytes { bytes.copyMemory(from: $0) }
    return bytes
  }

  private func inContainer(_ directory: String) throws {
    guard let keyFile else { throw ValidationError("--container takes --key-file") }
    let key = try Data(contentsOf: URL(filePath: keyFile))
    var secret = try SecretBytes(count: key.count)
    secret.withUnsafeMutableBytes { secret in key.withUnsafeBytes { secret.copyMemory(from: $0) } }
    let container = try Container.open(
      at: directory, credential: try .rawKey(secret), mode: write ? .readWrite : .readOnly)
    let open = try container.openFile(file, write ? .readWrite : .read)
    guard let attributes = try container.attributes(at: file) else { throw CocoaError(.fileReadNoSuchFile) }
    let offsets = offsets(in: attributes.size)
    let bytes = block()
    defer { bytes.deallocate() }
    for offset in offsets {
      if write {
        try open.write(UnsafeRawBufferPointer(bytes), at: offset)
      } else if try open.read(at: offset, into: bytes) != bytes.count {
        throw CocoaError(.fileReadCorruptFile)
      }
    }
    if write { try open.synchronize() }
    try open.close()
    try container.close()
  }

  private func natively() throws {
    let descriptor = Foundation.open(file, write ? O_RDWR : O_RDONLY)
    guard descriptor >= 0 else { throw CocoaError(.fileReadNoSuchFile) }
    defer { close(descriptor) }
    posix_fadvise(descriptor, 0, 0, POSIX_FADV_RANDOM)
    let offsets = offsets(in: UInt64(lseek(descriptor, 0, SEEK_END)))
    let bytes = block()
    defer { bytes.deallocate() }
    for offset in offsets {
      let done =
        write
        ? pwrite(descriptor, bytes.baseAddress, bytes.count, off_t(offset))
        : pread(descriptor, bytes.baseAddress, bytes.count, off_t(offset))
      guard done == bytes.count else { throw CocoaError(.fileReadCorruptFile) }
    }
    if write, fsync(descriptor) != 0 { throw CocoaError(.fileWriteUnknown) }
  }
}
