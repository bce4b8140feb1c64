import CPosix
import Foundation
import Locks
import TestSupport
import Testing
import UnixSockets

extension TemporaryDirectory {
  func exists(_ name: String) -> Bool {
    var status = stat()
    return lstat(self[name], &status) == 0
  }

  func setMode(_ mode: mode_t) throws {
    guard chmod(path, mode) == 0 else { throw TestFailure("chmod: \(errno)") }
  }
}

/// So late that only a hanging test meets it.
var minutes: ContinuousClock.Instant { .now + .seconds(120) }

/// Which open file a descriptor names.
struct OpenFile: Hashable {
  let device: UInt64
  let inode: UInt64

  init?(_ descriptor: Int32) {
    var status = stat()
    guard fstat(descriptor, &status) == 0 else { return nil }
    device = UInt64(status.st_dev)
    inode = UInt64(status.st_ino)
  }

  /// How many descriptors of this process name it; other tests of the process do not disturb.
  var descriptorCount: Int {
    get throws {
      let end = Int32(min(try DescriptorLimit.current().soft, 1 << 16))
      return (0..<end).count { OpenFile($0) == self }
    }
  }
}

/// A pipe whose ends are descriptors that close themselves.
struct Pipe: ~Copyable {
  let readEnd: Descriptor
  let writeEnd: Descriptor

  init() throws {
    var ends: [Int32] = [-1, -1]
    guard pipe(&ends) == 0 else { throw TestFailure("pipe: \(errno)") }
    let first = try Descriptor(adopting: ends[0])
    let second = try Descriptor(adopting: ends[1])
    readEnd = first
    writeEnd = second
  }
}

func isClosedOnExec(_ descriptor: Int32) -> Bool { cposix_is_close_on_exec(descriptor) == 1 }

extension DescriptorList {
  /// So many descriptors of one file.
  init(_ count: Int, of descriptor: borrowing Descriptor) throws {
    self.init()
    for _ in 0..<count { append(try descriptor.duplicate()) }
  }
}

extension Optional where Wrapped == Descriptor, Wrapped: ~Copyable {
  /// Which file it names; nil when there is none.
  var file: OpenFile? {
    switch self {
    case .some(let descriptor): OpenFile(descriptor.number)
    case .none: nil
    }
  }
}

/// Bytes that differ from place to place, so that one that is missing or repeated is seen.
func pattern(_ count: Int) -> [UInt8] {
  var bytes: [UInt8] = []
  bytes.reserveCapacity(count)
  while bytes.count < count { bytes += period.prefix(count - bytes.count) }
  return bytes
}

/// It is copied, since a loop over each byte takes seconds in code that is not optimised.
private let period = (0..<1 << 16).map { UInt8(truncatingIfNeeded: $0 &* 31 &+ $0 >> 8) }

/// More than any socket holds.
let plenty = [UInt8](repeating: 1, count: 50_000_000)

extension UnixConnection {
  borrowing func write(_ bytes: [UInt8], deadline: ContinuousClock.Instant?) throws {
    try bytes.withUnsafeBytes { try write($0, deadline: deadline) }
  }

  borrowing func send(_ bytes: [UInt8], _ descriptors: borrowing DescriptorList) throws {
    let pointer = UnsafeMutableRawBufferPointer.allocate(byteCount: bytes.count, alignment: 1)
    defer { pointer.deallocate() }
    pointer.copyBytes(from: bytes)
    try send(UnsafeRawBufferPointer(pointer), descriptors: descriptors, deadline: minutes)
  }

  /// Up to so many bytes, fewer only at the end.
  borrowing func read(_ count: Int, deadline: ContinuousClock.Instant?) throws -> [UInt8] {
    var bytes = [UInt8](repeating: 0, count: count)
    let received = try bytes.withUnsafeMutableBytes { try read(into: $0, deadline: deadline) }
    return Array(bytes[..<received])
  }

  borrowing func readWhole(_ count: Int, deadline: ContinuousClock.Instant?) throws -> [UInt8] {
    var bytes = [UInt8](repeating: 0, count: count)
    try bytes.withUnsafeMutableBytes { try readWhole(into: $0, deadline: deadline) }
    return bytes
  }

  /// What comes next, up to `count` bytes.
  borrowing func receive(_ count: Int, descriptorsMax: Int) throws -> Received {
    let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: count, alignment: 1)
    defer { buffer.deallocate() }
    var received = try receive(into: buffer, descriptorsMax: descriptorsMax, deadline: minutes)
    var result = Received(bytes: Array(buffer[..<received.byteCount]), descriptors: DescriptorList())
    while let descriptor = received.descriptors.popFirst() { result.descriptors.append(descriptor) }
    return result
  }

  /// What has come already, or nil.
  borrowing func receiveIfReady(_ count: Int) throws -> Int? {
    let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: count, alignment: 1)
    defer { buffer.deallocate() }
    return try receiveIfReady(into: buffer, descriptorsMax: 0)?.byteCount
  }

  /// Writes until no more fits, without waiting.
  borrowing func fill() throws {
    let chunk = pattern(1 << 16)
    while try chunk.withUnsafeBytes({ try sendIfReady($0) }) != nil {}
  }
}

struct Received: ~Copyable {
  let bytes: [UInt8]
  var descriptors: DescriptorList
}

/// A connection that threads share.
final class SharedConnection: Sendable {
  let connection: UnixConnection
  init(_ connection: consuming UnixConnection) { self.connection = connection }
}

final class SharedListener: Sendable {
  let listener: UnixListener
  init(_ listener: consuming UnixListener) { self.listener = listener }
}

/// Work on a thread of its own, so that a call that waits holds up no thread of the test runner.
final class Running<Value: Sendable>: Sendable {
  private let outcome = Guarded<Result<Value, any Error>?>(nil)
  private let ended = DispatchSemaphore(value: 0)
  private let identity = Guarded<pthread_t?>(nil)
  private let began = DispatchSemaphore(value: 0)

  init(_ body: @escaping @Sendable () throws -> Value) {
    Thread.detachNewThread { [self] in
      identity.withLock { $0 = pthread_self() }
      began.signal()
      do {
        let result = Result { try body() }
        outcome.withLock { $0 = result }
      }
      // The thread holds this object for a while yet, but nothing of the value any more.
      ended.signal()
    }
    began.wait()
  }

  var isRunning: Bool { outcome.withLock { $0 == nil } }

  /// Waits for its end and hands the value over, once: what it closes at its end is then closed with the caller's last reference.
  func value() throws -> Value {
    ended.wait()
    guard let result = outcome.withLock({ $0.take() }) else { throw TestFailure("the value was taken") }
    return try result.get()
  }

  /// Interrupts the call the thread waits in. Only while it cannot have ended.
  func signal(_ number: Int32) {
    identity.withLock { thread in if let thread { _ = pthread_kill(thread, number) } }
  }
}

/// Gives a signal a handler that does nothing and lets calls end with EINTR.
func letInterrupt(_ number: Int32) throws {
  var action = sigaction()
  #if canImport(Darwin)
    action.__sigaction_u.__sa_handler = { _ in }
  #else
    action.__sigaction_handler.sa_handler = { _ in }
  #endif
  guard sigaction(number, &action, nil) == 0 else { throw TestFailure("sigaction: \(errno)") }
}
