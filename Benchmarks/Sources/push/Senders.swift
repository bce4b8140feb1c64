import Foundation
import NIOCore
import NIOHTTP1
import NIOPosix
import PushWire
import Synchronization

/// Back ends on connections that stay open, one request after the other on each.
struct Senders: Sendable {
  /// By which a back end sends.
  enum Interface: String, Sendable {
    /// `/push/`, after RFC 8030.
    case push
    /// `/GNP1.0?method=notify`, the documented one.
    case notify
  }

  struct Outcome: Sendable, Codable {
    var accepted = 0
    var refused = 0
    var seconds = 0.0
    /// When each message was sent, in nanoseconds of the same clock as a device's.
    var sent: [String: UInt64] = [:]
  }

  let port: Int
  var interface = Interface.push
  let group: any EventLoopGroup

  /// Sends `count` messages to tokens in turn. The text of a message is its number, filled up to `byteCount`. The
  /// time begins when all connections are there and `start` has returned. With a `rate`, so many a second are sent at
  /// random times, whether or not the ones before were answered, as far as there are connections.
  func send(
    _ count: Int, to tokens: [String], connections: Int, byteCount: Int, notesTimes: Bool,
    rate: Double? = nil,
    start: () throws -> Void = {}
  ) async throws -> Outcome {
    var channels: [any Channel] = []
    for _ in 0..<connections {
      channels.append(
        try await ClientBootstrap(group: group)
          .channelInitializer { channel in
            channel.eventLoop.makeCompletedFuture {
              try channel.pipeline.syncOperations.addHTTPClientHandlers()
            }
          }
          .connect(host: "127.0.0.1", port: port).get())
    }
    try start()
    let begin = NIODeadline.now()
    let work = Work(
      interface: interface, count: count, tokens: tokens, byteCount: byteCount, notesTimes: notesTimes,
      times: rate.map { Self.randomTimes(count, from: begin, rate: $0) })
    var total = Outcome()
    var outcomes: [EventLoopFuture<Outcome>] = []
    for channel in channels {
      let outcome = channel.eventLoop.makePromise(of: Outcome.self)
      outcomes.append(outcome.futureResult)
      try await channel.eventLoop.submit {
        let sender = Sender(work, outcome)
        try channel.pipeline.syncOperations.addHandler(sender)
      }.get()
    }
    for outcome in outcomes {
      let outcome = try await outcome.get()
      total.accepted += outcome.accepted
      total.refused += outcome.refused
      total.sent.merge(outcome.sent) { a, _ in a }
    }
    total.seconds = Double((NIODeadline.now() - begin).nanoseconds) / 1e9
    return total
  }

  private static func randomTimes(_ count: Int, from begin: NIODeadline, rate: Double) -> [NIODeadline] {
    var time = begin
    return (0..<count).map { _ in
      time = time + .nanoseconds(Int64(-log(1 - Double.random(in: 0..<1)) / rate * 1e9))
      return time
    }
  }
}

/// The messages that the connections of a back end send together.
private final class Work: Sendable {
  let interface: Senders.Interface
  let byteCount: Int
  let notesTimes: Bool
  private let tokens: [String]
  private let count: Int
  /// When each message is due, if not at once.
  private let times: [NIODeadline]?
  private let next = Atomic<Int>(0)

  init(
    interface: Senders.Interface, count: Int, tokens: [String], byteCount: Int, notesTimes: Bool,
    times: [NIODeadline]?
  ) {
    self.interface = interface
    self.count = count
    self.tokens = tokens
    self.byteCount = byteCount
    self.notesTimes = notesTimes
    self.times = times
  }

  /// The next message, and when it is due.
  func take() -> (number: Int, token: String, due: NIODeadline)? {
    let number = next.add(1, ordering: .relaxed).oldValue
    guard number < count else { return nil }
    return (number, tokens[number % tokens.count], times?[number] ?? .now())
  }
}

/// One connection: sends a message, waits for the answer, and sends the next.
private final class Sender: ChannelInboundHandler {
  typealias InboundIn = HTTPClientResponsePart
  typealias OutboundOut = HTTPClientRequestPart

  private let work: Work
  private let promise: EventLoopPromise<Senders.Outcome>
  private var outcome = Senders.Outcome()

  init(_ work: Work, _ promise: EventLoopPromise<Senders.Outcome>) {
    self.work = work
    self.promise = promise
  }

  func handlerAdded(context: ChannelHandlerContext) { sendNext(context) }

  func channelRead(context: ChannelHandlerContext, data: NIOAny) {
    switch unwrapInboundIn(data) {
    case .head(let head): if isAccepted(head) { outcome.accepted += 1 } else { outcome.refused += 1 }
    case .body: break
    case .end: sendNext(context)
    }
  }

  func errorCaught(context: ChannelHandlerContext, error: any Error) {
    promise.fail(error)
    context.close(promise: nil)
  }

  func channelInactive(context: ChannelHandlerContext) { promise.fail(ChannelError.eof) }

  private func sendNext(_ context: ChannelHandlerContext) {
    guard let (number, token, due) = work.take() else {
      promise.succeed(outcome)
      return context.close(promise: nil)
    }
    // One that is late for lack of a connection counts from when it was due.
    guard due > .now() else { return send(number, token, time: due, context) }
    let bound = NIOLoopBound((self, context), eventLoop: context.eventLoop)
    context.eventLoop.scheduleTask(deadline: due) {
      let (sender, context) = bound.value
      sender.send(number, token, time: .now(), context)
    }
  }

  private func send(_ number: Int, _ token: String, time: NIODeadline, _ context: ChannelHandlerContext) {
    let name = "\(number)"
    let text = name + String(repeating: " ", count: max(0, work.byteCount - name.utf8.count))
    if work.notesTimes { outcome.sent[name] = time.uptimeNanoseconds }
    context.write(wrapOutboundOut(.head(request(to: token, text.utf8.count))), promise: nil)
    context.write(wrapOutboundOut(.body(.byteBuffer(ByteBuffer(string: text)))), promise: nil)
    context.writeAndFlush(wrapOutboundOut(.end(nil)), promise: nil)
  }

  private func request(to token: String, _ byteCount: Int) -> HTTPRequestHead {
    var head = HTTPRequestHead(
      version: .http1_1, method: .POST, uri: "/GNP1.0?method=notify",
      headers: ["Host": "localhost", "Content-Length": "\(byteCount)"])
    switch work.interface {
    case .push:
      head.uri = "/push/\(token.split(separator: " ").last ?? "")"
      head.headers.add(name: "TTL", value: "3600")
    case .notify:
      head.headers.add(name: "X-Good-GNP-Token", value: token)
    }
    return head
  }

  private func isAccepted(_ head: HTTPResponseHead) -> Bool {
    switch work.interface {
    case .push: head.status == .created
    case .notify: head.headers.first(name: "X-Good-GNP-Code")?.hasPrefix("100") == true
    }
  }
}

// MARK: - In processes of their own

/// Back ends in several processes, which begin together.
struct SenderProcesses {
  private let processes: [(process: Process, input: Pipe, output: Pipe)]

  /// Returns when every process has its connections. The tokens go to the processes in turn.
  init(
    _ processCount: Int, port: Int, _ count: Int, to tokens: [String], connections: Int, byteCount: Int,
    folder: URL
  ) throws {
    var processes: [(process: Process, input: Pipe, output: Pipe)] = []
    for index in 0..<processCount {
      let share = { (count: Int) in count / processCount + (index < count % processCount ? 1 : 0) }
      let list = folder.appending(path: "tokens-\(index)")
      let own = stride(from: index, to: tokens.count, by: processCount).map { tokens[$0] }
      try Data(own.joined(separator: "\n").utf8).write(to: list)
      let process = Process()
      let (input, output) = (Pipe(), Pipe())
      process.executableURL = URL(fileURLWithPath: "/proc/self/exe").resolvingSymlinksInPath()
      process.arguments = [
        "send", "--port", "\(port)", "--tokens", list.path, "--count", "\(share(count))", "--connections",
        "\(share(connections))", "--bytes", "\(byteCount)",
      ]
      process.standardInput = input
      process.standardOutput = output
      try process.run()
      processes.append((process, input, output))
    }
    self.processes = processes
    for (_, _, output) in processes {
      guard !output.fileHandleForReading.availableData.isEmpty else { throw SenderFailure() }
    }
  }

  /// Lets all of them send, and waits for the last.
  func run() async throws -> Senders.Outcome {
    let begin = ContinuousClock.now
    for (_, input, _) in processes { try input.fileHandleForWriting.close() }
    var total = Senders.Outcome()
    for (_, _, output) in processes {
      let text = try await Task.detached { try output.fileHandleForReading.readToEnd() }.value
      let outcome = try JSONDecoder().decode(Senders.Outcome.self, from: text ?? Data())
      total.accepted += outcome.accepted
      total.refused += outcome.refused
    }
    total.seconds = (ContinuousClock.now - begin) / .seconds(1)
    for (process, _, _) in processes { process.waitUntilExit() }
    return total
  }
}

private struct SenderFailure: Error, CustomStringConvertible {
  let description = "a process that sends has not started"
}
