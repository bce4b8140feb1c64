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

  /// Nobody but this process writes it or changes its length, whatever is done with the descriptor.
  @Test func isWrittenThroughItsMappingOnly() throws {
    let memory = try SharedMemory(byteCount: 8192)
    let descriptor = try memory.duplicateDescriptor()
    for count: off_t in [0, 8191, 8193] {
      #expect(ftruncate(descriptor.number, count) == -1 && errno == EPERM)
    }
    var byte: UInt8 = 9
    #expect(pwrite(descriptor.number, &byte, 1, 0) == -1 && errno == EPERM)
    #expect(cposix_punch_hole(descriptor.number, 0, 4096) == -EPERM)
    let writable = mmap(nil, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor.number, 0)
    #expect(writable == MAP_FAILED && errno == EPERM)
    let readable = try #require(mmap(nil, 4096, PROT_READ, MAP_SHARED, descriptor.number, 0))
    #expect(mprotect(readable, 4096, PROT_READ | PROT_WRITE) == -1 && errno == EACCES)
    // Opened anew, it is the same file.
    let path = "/proc/self/fd/\(descriptor.number)"
    let again = open(path, O_RDWR | O_CLOEXEC)
    #expect(pwrite(again, &byte, 1, 0) == -1)
    close(again)
    memory.bytes[5] = 7
    #expect(readable.load(fromByteOffset: 5, as: UInt8.self) == 7)
    munmap(readable, 4096)
    #expect(cposix_seal_shared_memory(descriptor.number) == -EPERM)
    #expect(cposix_is_close_on_exec(descriptor.number) == 1)
  }

  /// What came before it is gone stays readable.
  @Test func isReadAfterItsWriterIsGone() throws {
    var memory: SharedMemory? = try SharedMemory(byteCount: 4096)
    memory?.bytes[0] = 7
    let descriptor = try memory!.duplicateDescriptor()
    memory = nil
    let readerIfAny = SharedMemory.Reader(descriptor, byteCount: 4096)
    let reader = try #require(readerIfAny)
    var byte: UInt8 = 0
    try withUnsafeMutableBytes(of: &byte) { try reader.read(at: 0, into: $0) }
    #expect(byte == 7)
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

  /// F_SEAL_SEAL, F_SEAL_SHRINK, F_SEAL_GROW and F_SEAL_FUTURE_WRITE, by Linux's numbers.
  @Test(arguments: [Int32(0x01), 0x02, 0x04, 0x10]) func isNotTakenWithoutOneOfItsSeals(missing: Int32) throws
  {
    func sealed(_ seals: Int32) throws -> Descriptor {
      let number = cposix_shared_memory(4096)
      try #require(number >= 0)
      // F_ADD_SEALS
      #expect(fcntl(number, 1033, seals) == 0)
      return try Descriptor(adopting: number)
    }
    let isTaken = isMemory(try sealed(0x17 & ~missing), 4096)
    #expect(!isTaken)
    let isWholeTaken = isMemory(try sealed(0x17), 4096)
    #expect(isWholeTaken)
  }
}
