import AppKineticsTesting
import Foundation
import Locks
import TestSupport
import Testing

@testable import AppKinetics

extension TestApp {
  /// Nothing goes on in this app's services before the gate is opened.
  func hold() -> DispatchSemaphore {
    let gate = DispatchSemaphore(value: 0)
    let held = DispatchSemaphore(value: 0)
    Thread.detachNewThread {
      services.runtime.perform { _ in
        held.signal()
        gate.wait()
      }
    }
    waitBlocking(held)
    return gate
  }
}

extension TestApps {
  /// An app that offers `echo`, and one that has nothing to offer, both started.
  func echoPair(
    _ handler: @escaping ServiceHandler = { .reply($0.params) }
  ) async throws -> (provider: TestApp, consumer: AppServices) {
    let provider = try await start("com.example.provider") { try $0.offer(echo, handler: handler) }
    return (provider, try await start("com.example.consumer").services)
  }

  /// What the compositor was asked for, as texts; empty: nobody.
  var frontIDs: [String] { fronts.map { $0?.text ?? "" } }
}

/// A queue that begins nothing before it is resumed, which it is at the latest when nobody holds this object
/// any more: a queue that is suspended must not end.
final class HeldQueue: Sendable {
  private let queue: DispatchQueue
  private let isHeld = Guarded(false)

  /// Returns when the queue has done what it was given before.
  init(_ queue: DispatchQueue) {
    self.queue = queue
    hold()
  }

  private func hold() {
    queue.sync(flags: .barrier) { queue.suspend() }
    isHeld.withLock { $0 = true }
  }

  /// Lets the queue do what it was given so far. Within the work of a runtime's core nothing of that may wait for the core.
  func runOnce() {
    resume()
    hold()
  }

  deinit { resume() }

  func resume() {
    let wasHeld = isHeld.withLock { isHeld in
      defer { isHeld = false }
      return isHeld
    }
    if wasHeld { queue.resume() }
  }
}

/// Seeds of random tests; in the short form only one, another one in each run.
func seeds(_ long: UInt64, all: UInt64? = nil) -> [UInt64] {
  let first = SplitMix64.testSeed
  return switch TestEffort.current {
  case .short: [first &+ .random(in: 0..<long)]
  case .long: (0..<long).map { first &+ $0 }
  case .all: (0..<(all ?? long)).map { first &+ $0 }
  }
}

let greetings = WellKnownService.greetings.definition

/// A service of these tests, whose methods say nothing about their params.
let echo: ServiceDefinition = {
  do {
    return try ServiceDefinition(
      jsonText: """
        {"service-id": "com.example.echo", "version": "1.0.0.0", "methods": {
          "echo": {"params": {"type": "any"}, "result-value": {"type": "any"},
                   "attachments": {"minItems": 0}, "result-attachments": {"minItems": 0}},
          "tell": {"params": {"type": "any"}, "attachments": {"minItems": 0}},
          "add": {"params": {"type": "array", "items": {"type": "integer"}, "required": true},
                  "result-value": {"type": "integer", "required": true}, "errors": [{"code": 7}]}}}
        """)
  } catch {
    preconditionFailure("\(error)")
  }
}()

/// Sends the numbers from 0 on at once, and expects each of them back.
func expectEchoes(_ count: Int, to provider: ApplicationID, _ consumer: AppServices) async throws {
  var sent: [SentRequest] = []
  for i in 0..<count {
    sent.append(
      try await consumer.send(ServiceRequest(echo, "echo", params: .integer(Int64(i))), to: provider))
  }
  for (i, request) in sent.enumerated() {
    #expect(try await request.reply()?.params == .integer(Int64(i)))
  }
}

/// Values that one side puts in and the other awaits.
final class Box<Value: Sendable>: Sendable {
  private let stream: AsyncStream<Value>
  private let continuation: AsyncStream<Value>.Continuation
  private let all = Guarded<[Value]>([])

  init() { (stream, continuation) = AsyncStream.makeStream() }

  func put(_ value: Value) {
    all.withLock { $0.append(value) }
    continuation.yield(value)
  }

  func next() async -> Value? {
    for await value in stream { return value }
    return nil
  }

  var values: [Value] { all.withLock { $0 } }
}
