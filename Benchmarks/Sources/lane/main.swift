// A message of 64 bytes and its echo over a control lane between two processes. It needs the package's own interface, so it is a target of
// the package's, and no product.
//
//     lane-benchmark measure COUNT [NAME]    prints lines of: name, median and 99th percentile in microseconds, messages per second
//     lane-benchmark serve FD                the other process
//     lane-benchmark bulk COUNT [REPETITIONS]  so many full frames of a bulk lane, and as many bytes over the
//                                            bare socket, in turns: see Bulk.swift

import Dispatch
import Foundation
import LocalTransport
import Locks
import ServiceWire
import SodiumPrimitives

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

let payloadByteCount = 64
let window = 64

func fail(_ what: String) -> Never {
  FileHandle.standardError.write(Data("lane-benchmark: \(what)\n".utf8))
  exit(1)
}

func microseconds() -> Double {
  var time = timespec()
  clock_gettime(CLOCK_MONOTONIC, &time)
  return Double(time.tv_sec) * 1e6 + Double(time.tv_nsec) / 1e3
}

let message = WireChannelMessage.with { $0.request.method = String(repeating: "x", count: payloadByteCount) }

func send(_ messages: [WireChannelMessage], over lane: ControlLane) {
  do { try lane.send(messages) } catch { fail("sending failed: \(error.text)") }
}

func open(
  _ descriptor: Int32, isDialler: Bool, received: @escaping @Sendable (ControlLane, Int) -> Void
) throws -> (lane: ControlLane, opened: DispatchSemaphore, closed: DispatchSemaphore) {
  // Each side has to know the other's.
  let (dialler, acceptor) = (
    try KeyPair(copying: [UInt8](repeating: 1, count: 32)),
    try KeyPair(copying: [UInt8](repeating: 2, count: 32))
  )
  let (own, other) = isDialler ? (dialler, acceptor) : (acceptor, dialler)
  let (opened, closed) = (DispatchSemaphore(value: 0), DispatchSemaphore(value: 0))
  let events = LaneEvents<WireChannelMessage>(
    opened: { _ in opened.signal() },
    received: { lane, messages in
      for message in messages where message.request.method.utf8.count != payloadByteCount {
        fail("another message came")
      }
      received(lane, messages.count)
    },
    closed: { _, end in
      if end.fault != .noError { fail("the lane ended: \(end.fault.text)") }
      closed.signal()
    })
  let lane = try ControlLane.open(
    descriptor: descriptor,
    sealing: .channel(isDialler: isDialler, own: own, peer: Data(other.publicKey), prologue: []),
    events: events)
  return (lane, opened, closed)
}

// MARK: The other process

func serve(_ descriptor: Int32) throws {
  let (_, _, closed) = try open(descriptor, isDialler: false) { lane, count in
    send(Array(repeating: message, count: count), over: lane)
  }
  closed.wait()
}

func startServer(_ descriptor: Int32, closing other: Int32) throws -> pid_t {
  _ = fcntl(other, F_SETFD, FD_CLOEXEC)
  let path = Bundle.main.executablePath ?? CommandLine.arguments[0]
  let arguments: [String] = [path, "serve", "\(descriptor)"]
  var words: [UnsafeMutablePointer<CChar>?] = arguments.map { strdup($0) } + [nil]
  defer { for word in words { free(word) } }
  var process = pid_t()
  guard posix_spawn(&process, path, nil, nil, &words, environ) == 0 else { fail("no second process") }
  close(descriptor)
  return process
}

// MARK: Measuring

/// What is done with the replies that come.
final class Replies: Sendable {
  /// A function in a mutex by itself would be wrapped once more each time that it is taken out.
  private struct Handler { let call: @Sendable (ControlLane, Int) -> Void }
  private let handler = Guarded<Handler?>(nil)

  func set(_ handler: @escaping @Sendable (ControlLane, Int) -> Void) {
    self.handler.withLock { $0 = Handler(call: handler) }
  }

  func came(_ lane: ControlLane, _ count: Int) { handler.withLock { $0 }?.call(lane, count) }
}

func report(_ name: String, _ times: [Double], total: Double) {
  let sorted = times.sorted()
  print(
    name, String(format: "%.1f", sorted[sorted.count / 2]),
    String(format: "%.1f", sorted[sorted.count * 99 / 100]),
    String(format: "%.0f", Double(times.count) / total * 1e6), separator: "\t")
}

/// The thread that asks blocks until the echo is there.
func measureBlocking(_ lane: ControlLane, _ replies: Replies, count: Int) {
  let came = DispatchSemaphore(value: 0)
  replies.set { _, _ in came.signal() }
  var times: [Double] = []
  var begin = microseconds()
  for i in -count / 10..<count {
    if i == 0 { begin = microseconds() }
    let before = microseconds()
    send([message], over: lane)
    came.wait()
    if i >= 0 { times.append(microseconds() - before) }
  }
  report("lane-round-trip-blocking", times, total: microseconds() - begin)
}

/// A task that asks is suspended until the echo is there.
func measureSuspending(_ lane: ControlLane, _ replies: Replies, count: Int) async {
  let waiting = Guarded<CheckedContinuation<Void, Never>?>(nil)
  replies.set { _, _ in waiting.withLock { $0.take() }?.resume() }
  var times: [Double] = []
  var begin = microseconds()
  for i in -count / 10..<count {
    if i == 0 { begin = microseconds() }
    let before = microseconds()
    await withCheckedContinuation { continuation in
      waiting.withLock { $0 = continuation }
      send([message], over: lane)
    }
    if i >= 0 { times.append(microseconds() - before) }
  }
  report("lane-round-trip-task", times, total: microseconds() - begin)
}

/// The next is asked where the echo is received, on the lane's thread.
func measureWhereReceived(_ lane: ControlLane, _ replies: Replies, count: Int) {
  let done = DispatchSemaphore(value: 0)
  let state = Guarded((times: [Double](), before: 0.0, left: count))
  replies.set { lane, _ in
    let isDone = state.withLock { state in
      let now = microseconds()
      if state.before > 0 { state.times.append(now - state.before) }
      state.before = now
      state.left -= 1
      return state.left < 0
    }
    if isDone { done.signal() } else { send([message], over: lane) }
  }
  let begin = microseconds()
  send([message], over: lane)
  done.wait()
  report("lane-round-trip-reader", state.withLock { $0.times }, total: microseconds() - begin)
}

/// Always as many under way as the window has.
func measurePipelined(_ lane: ControlLane, _ replies: Replies, count: Int) {
  let done = DispatchSemaphore(value: 0)
  let state = Guarded((sent: window, received: 0))
  replies.set { lane, received in
    let more = state.withLock { state in
      state.received += received
      let more = min(received, count - state.sent)
      state.sent += more
      if state.received == count { done.signal() }
      return more
    }
    if more > 0 { send(Array(repeating: message, count: more), over: lane) }
  }
  let begin = microseconds()
  send(Array(repeating: message, count: window), over: lane)
  done.wait()
  print(
    "lane-pipelined", "-", "-", String(format: "%.0f", Double(count) / (microseconds() - begin) * 1e6),
    separator: "\t")
}

func measure(count: Int, only name: String?) async throws {
  var ends: [Int32] = [0, 0]
  #if canImport(Glibc)
    let type = Int32(SOCK_STREAM.rawValue)
  #else
    let type = SOCK_STREAM
  #endif
  guard socketpair(AF_UNIX, type, 0, &ends) == 0 else { fail("no socket pair") }
  let server = try startServer(ends[1], closing: ends[0])
  let replies = Replies()
  let (lane, opened, closed) = try open(ends[0], isDialler: true) { replies.came($0, $1) }
  await wait(for: opened)
  if [nil, "blocking"].contains(name) { measureBlocking(lane, replies, count: count) }
  if [nil, "task"].contains(name) { await measureSuspending(lane, replies, count: count) }
  if [nil, "reader"].contains(name) { measureWhereReceived(lane, replies, count: count) }
  if [nil, "pipelined"].contains(name) { measurePipelined(lane, replies, count: count * 10) }
  lane.close(.noError)
  await wait(for: closed)
  var status: Int32 = 0
  guard waitpid(server, &status, 0) == server, status == 0 else { fail("the second process failed") }
}

func wait(for semaphore: DispatchSemaphore) async {
  await withCheckedContinuation { continuation in
    Thread.detachNewThread {
      semaphore.wait()
      continuation.resume()
    }
  }
}

let arguments = Array(CommandLine.arguments.dropFirst())
let number = arguments.count >= 2 ? Int(arguments[1]) : nil
switch (arguments.first, number) {
case ("serve", let descriptor?): try serve(Int32(descriptor))
case ("bulk", let count?) where count >= 1:
  measureBulk(frameCount: count, repetitions: arguments.count > 2 ? Int(arguments[2]) ?? 5 : 5)
case ("measure", let count?) where count >= 100:
  try await measure(count: count, only: arguments.count > 2 ? arguments[2] : nil)
default: fail("say measure and a count of at least 100, or bulk and a number of frames of 1 MiB")
}
