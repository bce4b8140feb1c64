// The other side in tests that need a second process. It is told what to do by its arguments and by lines on standard input,
// and answers with lines on standard output; the end of its input ends it.

import CPosix
import UnixSockets

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

func say(_ line: String) {
  let bytes = Array((line + "\n").utf8)
  guard write(1, bytes, bytes.count) == bytes.count else { exit(3) }
}

/// One line from standard input, or until its end.
func waitForLine() { _ = readLine() }

/// How many descriptors of this process are open.
func openCount() -> Int { (0..<Int32(256)).count { fcntl($0, F_GETFD) >= 0 } }

/// Bytes of no meaning.
func bytes(_ count: Int) -> [UInt8] { (0..<count).map { UInt8(truncatingIfNeeded: $0) } }

func run(_ command: String, _ path: String, _ number: Int) throws(SocketError) {
  switch command {
  case "listen":
    say("ready")
    waitForLine()
    let listener = try UnixListener(path: path)
    say("listening")
    waitForLine()
    listener.close()
  case "accept":
    let listener = try UnixListener(path: path)
    say("listening")
    let connection = try listener.accept(deadline: nil)
    say("accepted \(try connection.peerCredentials().process)")
    waitForLine()
  case "write":
    let connection = try UnixConnection.dial(path: path, deadline: nil)
    let data = bytes(number)
    try data.withRawBytes { (data) throws(SocketError) in try connection.write(data, deadline: nil) }
    say("written")
    waitForLine()
  case "send descriptor":
    let connection = try UnixConnection.dial(path: path, deadline: nil)
    var list = DescriptorList()
    list.append(try Descriptor(adopting: 0).duplicate())
    try bytes(number).withRawBytes { (data) throws(SocketError) in
      try connection.send(data, descriptors: list, deadline: nil)
    }
    say("sent")
    _ = connection.takeDescriptor().take()
    pause()
  case "use descriptor":
    let connection = try UnixConnection.dial(path: path, deadline: nil)
    let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: number, alignment: 1)
    defer { buffer.deallocate() }
    var received = try connection.receive(into: buffer, descriptorsMax: 1, deadline: nil)
    guard let descriptor = received.descriptors.popFirst() else { return say("no descriptor") }
    let own = try UnixConnection(adopting: descriptor)
    try Array("through the descriptor".utf8).withRawBytes { (data) throws(SocketError) in
      try own.write(data, deadline: nil)
    }
    say("used")
    waitForLine()
  case "receive with room for":
    for number in Int32(3)..<256 { close(number) }  // the limit is of numbers, so none may lie above a gap
    let connection = try UnixConnection.dial(path: path, deadline: nil)
    let before = openCount()
    guard cposix_set_soft_descriptor_limit(UInt64(before + number)) == 0 else { return say("no limit") }
    let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: 16, alignment: 1)
    defer { buffer.deallocate() }
    do throws(SocketError) {
      let received = try connection.receive(into: buffer, descriptorsMax: 8, deadline: nil)
      say("received \(received.descriptors.count)")
    } catch {
      say(error == .messageTruncated ? "truncated" : error.description)
    }
    say("\(openCount() - before) more open")
    waitForLine()
  case "write to the end":
    signal(SIGPIPE, SIG_DFL)
    let pair = try SocketPair()
    pair.second.shutdown()
    do throws(SocketError) {
      try bytes(1).withRawBytes { (data) throws(SocketError) in try pair.first.write(data, deadline: nil) }
      say("written")
    } catch {
      say(error == .closed ? "closed" : error.description)
    }
    do throws(SocketError) {
      _ = try bytes(1).withRawBytes { (data) throws(SocketError) in try pair.first.sendIfReady(data) }
      say("written")
    } catch {
      say(error == .closed ? "closed" : error.description)
    }
  case "raise limit":
    guard cposix_set_soft_descriptor_limit(UInt64(number)) == 0 else { return say("no limit") }
    say("soft \(try DescriptorLimit.current().soft)")
    let limit = try DescriptorLimit.raiseSoftToHard()
    say(limit.soft == limit.hard ? "raised" : "soft \(limit.soft), hard \(limit.hard)")
    say(try DescriptorLimit.current() == limit ? "in force" : "not in force")
  default: say("unknown command \(command)")
  }
}

extension Array where Element == UInt8 {
  func withRawBytes<R>(_ body: (UnsafeRawBufferPointer) throws(SocketError) -> R) throws(SocketError) -> R {
    try withUnsafeBufferPointer { (buffer) throws(SocketError) in try body(UnsafeRawBufferPointer(buffer)) }
  }
}

let arguments = CommandLine.arguments
do throws(SocketError) {
  try run(
    arguments[1], arguments.count > 2 ? arguments[2] : "", arguments.count > 3 ? Int(arguments[3]) ?? 0 : 0)
} catch {
  if case .addressInUse = error { say("refused") } else { say(error.description) }
  waitForLine()
}
