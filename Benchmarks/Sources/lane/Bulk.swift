import Dispatch
import Foundation
import LocalTransport
import ServiceWire

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

// Bytes from one thread to another through a socket pair: sealed and opened by two bulk lanes, and as they are.

/// Bytes that cost nothing: what is in the buffer is sent.
private final class NothingToRead: BulkSource {
  func read(into buffer: UnsafeMutableRawBufferPointer) -> Int { BulkLane.readByteCount }
}

private final class NothingToKeep: BulkSink {
  func receive(_ plaintext: UnsafeRawBufferPointer) {}
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

private func bulkLane(_ byteCount: Int, slots: Int) -> Double {
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
    BulkLane(descriptor: near, events: events), BulkLane(descriptor: far, events: events)
  )
  sender.allowSlots(slots)
  let key = Data(repeating: 7, count: 32)
  let count = UInt64(byteCount)
  let begin = microseconds()
  receiver.expect(stream: 1, key: key, byteCount: count, credit: count, sink: NothingToKeep())
  sender.send(stream: 1, key: key, byteCount: count, credit: count, from: NothingToRead())
  received.wait()
  let time = microseconds() - begin
  sender.close()
  receiver.close()
  return time / 1e6
}

private func bareSocket(_ byteCount: Int) -> Double {
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

func measureBulk(byteCount: Int, repetitions: Int) {
  let cases: [(String, (Int) -> Double)] = [
    ("bulk-lane", { bulkLane($0, slots: BulkLane.slotCountMax) }),
    ("bulk-lane-socket", { bulkLane($0, slots: 0) }), ("bare-socket", bareSocket),
  ]
  var times: [[Double]] = cases.map { _ in [] }
  for repetition in 0...max(1, repetitions) {
    for (index, (_, body)) in cases.enumerated() {
      let time = body(byteCount)
      if repetition > 0 { times[index].append(time) }
    }
  }
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
