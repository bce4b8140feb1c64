import Dispatch
import Foundation
import LocalTransport
import Locks
import ServiceWire

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

// Bytes from one thread to another through a socket pair: as contents of the frames of two bulk lanes, and
// as they are.

/// Contents that cost nothing: what is in the buffer is sent. Each frame is as full as the lane lets it be, and has a block of 64 keys.
private final class NothingToRead: BulkSource {
  private let left: Guarded<Int>

  init(frameCount: Int) { left = Guarded(frameCount) }

  func next(block: UnsafeMutableRawBufferPointer, contents: UnsafeMutableRawBufferPointer) -> BulkPart {
    let isLast = left.withLock { left in
      left -= 1
      return left == 0
    }
    return BulkPart(
      blockByteCount: 12 + 20 + 64 * 32, contentsByteCount: contents.count, isLast: isLast)
  }
}

/// Copies the contents out, a segment at a time, which is the least that a receiver does with them.
private final class NothingToKeep: BulkSink {
  private let segment = Guarded([UInt8](repeating: 0, count: BulkFrame.contentsByteCountMax / 64))

  func receive(_ block: UnsafeRawBufferPointer, _ contents: BulkContents, isLast: Bool) throws {
    try segment.withLock { segment in
      for index in 0..<contents.byteCount / segment.count {
        try segment.withUnsafeMutableBytes { try contents.read(at: index * $0.count, into: $0) }
      }
    }
  }
}

private func socketPair() -> (Int32, Int32) {
  var ends: [Int32] = [0, 0]
  #if canImport(Glibc)
    let type = Int32(SOCK_STREAM.rawValue)
  #else
    let type = SOCK_STREAM
  #endif
  guard socketpair(AF_UNIX, type, 0, &ends) == 0 else { fail("no socket pair") }
  return (ends[0], ends[1])
}

private func bulkLane(_ fullFrameCount: Int, slots: Int) -> Double {
  // As many bytes in shorter frames.
  let frameCount =
    slots > 0
    ? fullFrameCount : fullFrameCount * BulkFrame.contentsByteCountMax / BulkLane.socketContentsByteCountMax
  let (near, far) = socketPair()
  let received = DispatchSemaphore(value: 0)
  let events = BulkEvents(
    sent: { _, error in if error != nil { fail("the source failed") } },
    received: { _, error in
      if error != nil { fail("the sink failed") }
      received.signal()
    },
    // One of both is closed first.
    failed: { fault, detail in
      if fault != .noError { fail("the lane ended: \(fault.text): \(detail)") }
    })
  let (sender, receiver) = (
    BulkLane(descriptor: near, events: events, budget: BulkSlotBudget()),
    BulkLane(descriptor: far, events: events, budget: BulkSlotBudget())
  )
  sender.allowSlots(slots)
  let key = Data(repeating: 7, count: 32)
  let credit = UInt64(frameCount)
  let begin = microseconds()
  receiver.expect(stream: 1, key: key, credit: credit, sink: NothingToKeep())
  sender.send(
    stream: 1, key: key, byteCount: credit * UInt64(BulkFrame.contentsByteCountMax), credit: credit,
    from: NothingToRead(frameCount: frameCount))
  received.wait()
  let time = microseconds() - begin
  sender.close()
  receiver.close()
  return time / 1e6
}

private func bareSocket(_ frameCount: Int) -> Double {
  let byteCount = frameCount * BulkFrame.contentsByteCountMax
  let (near, far) = socketPair()
  let begin = microseconds()
  let received = DispatchSemaphore(value: 0)
  Thread.detachNewThread {
    var buffer = [UInt8](repeating: 0, count: 512 << 10)
    var count = 0
    while count < byteCount {
      let part = recv(far, &buffer, buffer.count, 0)
      guard part > 0 else { fail("recv failed") }
      count += part
    }
    received.signal()
  }
  let buffer = [UInt8](repeating: 7, count: 1 << 20)
  var count = 0
  while count < byteCount {
    let part = send(near, buffer, min(buffer.count, byteCount - count), 0)
    guard part > 0 else { fail("send failed") }
    count += part
  }
  received.wait()
  let time = microseconds() - begin
  close(near)
  close(far)
  return time / 1e6
}

func measureBulk(frameCount: Int, repetitions: Int) {
  let cases: [(String, (Int) -> Double)] = [
    ("bulk-lane", { bulkLane($0, slots: BulkLane.slotCountMax) }),
    ("bulk-lane-socket", { bulkLane($0, slots: 0) }), ("bare-socket", bareSocket),
  ]
  var times: [[Double]] = cases.map { _ in [] }
  for repetition in 0...max(1, repetitions) {
    for (index, (_, body)) in cases.enumerated() {
      let time = body(frameCount)
      if repetition > 0 { times[index].append(time) }
    }
  }
  let byteCount = frameCount * BulkFrame.contentsByteCountMax
  print("name\tmedian/s\tmin/s\tmax/s\tGB/s")
  for ((name, _), times) in zip(cases, times) {
    let sorted = times.sorted()
    let median = sorted[sorted.count / 2]
    let columns = [median, sorted[0], sorted[sorted.count - 1]].map { String(format: "%.3f", $0) }
    print(
      name, columns.joined(separator: "\t"), String(format: "%.2f", Double(byteCount) / median / 1e9),
      separator: "\t")
  }
}
