import CPosix
import Foundation
import Testing
import UnixSockets

@Suite(.enabled(if: SharedMemory.isAvailable)) struct SharedMemoryTests {
  @Test func isReadThroughItsDescriptorAsItIsNow() throws {
    let memory = try SharedMemory(byteCount: 10_000)
    let descriptor = try memory.duplicateDescriptor()
    let readerIfAny = SharedMemory.Reader(descriptor, byteCount: 10_000)
    let reader = try #require(readerIfAny)
    var bytes = [UInt8](repeating: 1, count: 300)
    func read() throws -> [UInt8] {
      try bytes.withUnsafeMutableBytes { try reader.read(at: 9_700, into: $0) }
      return bytes
    }
    #expect(try read() == [UInt8](repeating: 0, count: 300))
    memory.bytes[9_999] = 7
    #expect(try read() == [UInt8](repeating: 0, count: 299) + [7])
    #expect(throws: SocketError.self) {
      try bytes.withUnsafeMutableBytes { try reader.read(at: 9_701, into: $0) }
    }
  }

  /// Whoever keeps the descriptor keeps none of the memory.
  @Test func isGivenBackWhenItGoes() throws {
    var memory: SharedMemory? = try SharedMemory(byteCount: 100_000)
    memory?.bytes.initializeMemory(as: UInt8.self, repeating: 7)
    let descriptor = try memory!.duplicateDescriptor()
    var status = stat()
    #expect(fstat(descriptor.number, &status) == 0 && status.st_blocks > 0)
    memory = nil
    #expect(fstat(descriptor.number, &status) == 0 && status.st_blocks == 0)
    let readerIfAny = SharedMemory.Reader(descriptor, byteCount: 100_000)
    let reader = try #require(readerIfAny)
    var bytes = [UInt8](repeating: 1, count: 5)
    try bytes.withUnsafeMutableBytes { try reader.read(at: 0, into: $0) }
    #expect(bytes == [0, 0, 0, 0, 0])
  }

  @Test func hasALengthThatNobodyChanges() throws {
    let memory = try SharedMemory(byteCount: 4096)
    let descriptor = try memory.duplicateDescriptor()
    for count: off_t in [0, 4095, 4097] {
      #expect(ftruncate(descriptor.number, count) == -1 && errno == EPERM)
    }
    #expect(cposix_is_close_on_exec(descriptor.number) == 1)
  }

  private func isMemory(_ descriptor: consuming Descriptor, _ count: Int) -> Bool {
    SharedMemory.Reader(descriptor, byteCount: count) != nil
  }

  @Test func nothingElseIsTakenForIt() throws {
    let memory = try SharedMemory(byteCount: 4096)
    for count in [0, 4095, 4097] {
      let descriptor = try memory.duplicateDescriptor()
      let isTaken = isMemory(descriptor, count)
      #expect(!isTaken)
    }
    var ends: [Int32] = [0, 0]
    #expect(pipe(&ends) == 0)
    let isPipeTaken = isMemory(try Descriptor(adopting: ends[0]), 0)
    #expect(!isPipeTaken)
    close(ends[1])
    // A length that could still change.
    let path = "/dev/shm/opendynamics-\(UUID().uuidString)"
    let file = open(path, O_RDWR | O_CREAT | O_EXCL, 0o600)
    unlink(path)
    try #require(file >= 0)
    #expect(ftruncate(file, 4096) == 0)
    let isFileTaken = isMemory(try Descriptor(adopting: file), 4096)
    #expect(!isFileTaken)
  }
}
