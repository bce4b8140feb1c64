package import Foundation
import Locks
import ServiceValues
package import ServiceWire
package import SodiumPrimitives
import UnixSockets

/// A broker's client that asks, and is no app: tools find, watch and administer with it.
package final class BrokerClient: Sendable {
  private let state = Guarded(State())
  private let other: @Sendable (WireBrokerMessage) -> Void
  private let ended: @Sendable (ProtocolFault) -> Void

  private struct State {
    /// From the end of the handshake to the end of the connection.
    var lane: BrokerLane?
    var brokerKey: Data?
    var end: ProtocolFault?
    var isCancelled = false
    var nextNumber: UInt64 = 1
    var beginning: CheckedContinuation<WireEnrolled, any Error>?
    var questions: [UInt64: CheckedContinuation<WireAnswer, any Error>] = [:]
    var watches: [UInt64: AsyncThrowingStream<Change, any Error>.Continuation] = [:]
  }

  /// What a watch tells.
  package enum Change: Sendable {
    /// What there is: the first, until `isLast`.
    case list([WireProvider], isLast: Bool)
    case changed(present: [WireProvider], gone: [String])
  }

  private init(
    _ other: @escaping @Sendable (WireBrokerMessage) -> Void,
    _ ended: @escaping @Sendable (ProtocolFault) -> Void
  ) { (self.other, self.ended) = (other, ended) }

  /// Attends at the broker of that socket. `broker` is its public key, when it is known; `administrator` the key that may administer.
  ///
  /// Throws `SocketError`, `BrokerKeyError`, `ProtocolFault`, and `ServicesError` `brokerUnavailable`; `CancellationError`
  /// when its task is cancelled.
  package static func attend(
    path: String, name: String, broker: Data?, administrator: KeyPair? = nil
  ) async throws -> BrokerClient {
    let beginning = WireBrokerMessage.with {
      $0.attend.version = BrokerState.versionMax
      $0.attend.name = name
      $0.attend.administers = administrator != nil
    }
    return try await begin(
      path: path, key: try administrator ?? KeyPair(), broker: broker, beginning
    ).client
  }

  /// Begins as `beginning` says. `descriptors` owns what comes on the descriptor lane; `other` gets what is no answer and of no watch, on
  /// the thread that reads the connection, and `ended` hears there why a connection is no more that began.
  package static func begin(
    path: String, key: KeyPair, broker: Data?, _ beginning: WireBrokerMessage,
    descriptors: (@Sendable (Data, Int32, Int32) -> Void)? = nil,
    other: @escaping @Sendable (WireBrokerMessage) -> Void = { _ in },
    ended: @escaping @Sendable (ProtocolFault) -> Void = { _ in }
  ) async throws -> (client: BrokerClient, enrolled: WireEnrolled) {
    let client = BrokerClient(other, ended)
    let enrolled = try await withTaskCancellationHandler {
      try await client.begin(path, key, broker, beginning, descriptors ?? { closeBoth($1, $2) })
    } onCancel: {
      client.cancelBeginning()
    }
    return (client, enrolled)
  }

  /// Dials, and waits for the broker's word.
  private func begin(
    _ path: String, _ key: KeyPair, _ broker: Data?, _ beginning: WireBrokerMessage,
    _ descriptors: @escaping @Sendable (Data, Int32, Int32) -> Void
  ) async throws -> WireEnrolled {
    try await withCheckedThrowingContinuation { continuation in
      let isCancelled = state.withLock { state in
        if !state.isCancelled { state.beginning = continuation }
        return state.isCancelled
      }
      if isCancelled { return continuation.resume(throwing: CancellationError()) }
      // Dialling blocks, and the handshake has to follow at once: the broker does not wait until a task gets its turn.
      do {
        try DetachedThread.start("dialling") {
          do {
            try self.open(path, key, broker, beginning, descriptors)
          } catch {
            self.takeBeginning()?.resume(throwing: error)
          }
        }
      } catch {
        takeBeginning()?.resume(throwing: error)
      }
    }
  }

  private func cancelBeginning() {
    let (beginning, lane) = state.withLock { state in
      state.isCancelled = true
      defer { state.beginning = nil }
      return (state.beginning, state.lane)
    }
    lane?.close(.noError)
    beginning?.resume(throwing: CancellationError())
  }

  /// Blocks until the broker has accepted.
  private func open(
    _ path: String, _ key: KeyPair, _ broker: Data?, _ beginning: WireBrokerMessage,
    _ descriptors: @escaping @Sendable (Data, Int32, Int32) -> Void
  ) throws {
    let dialled = try BrokerDial.dial(path: path, pinned: broker)
    let receiver: DescriptorReceiver
    do {
      receiver = try DescriptorReceiver(
        descriptor: dialled.descriptorLane, received: descriptors, closed: { _ in })
    } catch {
      closeDescriptor(dialled.socket)
      throw error
    }
    let events = LaneEvents<WireBrokerMessage>(
      opened: { lane in
        let isCancelled = self.state.withLock { state in
          (state.lane, state.brokerKey) = (lane, lane.peerPublicKey)
          return state.isCancelled
        }
        if isCancelled { return lane.close(.noError) }
        do throws(ProtocolFault) {
          try lane.send([beginning])
        } catch {
          lane.close(error)
        }
      },
      received: { _, messages in for message in messages { self.receive(message) } },
      closed: { _, end in
        receiver.close()
        self.didEnd(end.fault)
      })
    do {
      _ = try BrokerLane.open(
        descriptor: dialled.socket, sealing: .toBroker(own: key, broker: dialled.brokerKey), events: events)
    } catch {
      receiver.close()
      throw error
    }
  }

  private func takeBeginning() -> CheckedContinuation<WireEnrolled, any Error>? {
    state.withLock { state in
      defer { state.beginning = nil }
      return state.beginning
    }
  }

  /// The broker's public key.
  package var brokerKey: Data? { state.withLock { $0.brokerKey } }

  package func close() { state.withLock { $0.lane }?.close(.noError) }

  // MARK: Asking

  /// Throws `ServicesError` when the answer is one, `ProtocolFault` when the connection ends before.
  package func ask(_ kind: WireQuestion.OneOf_Kind) async throws -> WireAnswer {
    let answer = try await withCheckedThrowingContinuation { continuation in
      let (number, lane, end) = state.withLock { state in
        let number = state.nextNumber
        state.nextNumber += 1
        if state.lane != nil { state.questions[number] = continuation }
        return (number, state.lane, state.end)
      }
      guard let lane else {
        return continuation.resume(throwing: end ?? ProtocolFault.connectionLost)
      }
      send(kind, number, on: lane)
    }
    if let failure = Self.failure(of: answer) { throw failure }
    return answer
  }

  private static func failure(of answer: WireAnswer) -> ServicesError? {
    guard case .failure(let failure)? = answer.kind else { return nil }
    return ServicesError(
      .init(rawValue: Int32(truncatingIfNeeded: failure.error)),
      detail: failure.detail.isEmpty ? nil : failure.detail)
  }

  private func send(_ kind: WireQuestion.OneOf_Kind, _ number: UInt64, on lane: BrokerLane) {
    do throws(ProtocolFault) {
      try lane.send([
        .with {
          $0.question.number = number
          $0.question.kind = kind
        }
      ])
    } catch {
      lane.close(error)
    }
  }

  /// All providers that the filter finds, page by page.
  package func find(_ filter: WireFind) async throws -> [WireProvider] {
    var (filter, found) = (filter, [WireProvider]())
    while true {
      let page = try await ask(.find(filter)).providers
      found += page.providers
      guard page.more, let last = page.providers.last else { return found }
      filter.after = last.appID
    }
  }

  /// What there is, and what becomes of it, until the stream's end.
  package func watch(_ filter: WireFind) -> AsyncThrowingStream<Change, any Error> {
    let (stream, continuation) = AsyncThrowingStream<Change, any Error>.makeStream()
    let (number, lane, end) = state.withLock { state in
      let number = state.nextNumber
      state.nextNumber += 1
      if state.lane != nil { state.watches[number] = continuation }
      return (number, state.lane, state.end)
    }
    if let lane {
      send(.watch(filter), number, on: lane)
    } else {
      continuation.finish(throwing: end ?? ProtocolFault.connectionLost)
    }
    return stream
  }

  package typealias AppList = (apps: [WireApp], pending: [WireApp], brokerFingerprint: Data)

  /// All apps that the broker knows, those that wait for approval, and its fingerprint. For administrators.
  package func apps() async throws -> AppList {
    var (list, found, pending) = (WireAdminister.ListApps(), [WireApp](), [WireApp]())
    while true {
      let message = list
      let page = try await ask(.administer(.with { $0.listApps = message })).apps
      found += page.apps
      pending += page.pending
      guard page.more, let last = page.apps.last else { return (found, pending, page.brokerFingerprint) }
      list.after = last.provider.appID
    }
  }

  // MARK: Receiving

  private func receive(_ message: WireBrokerMessage) {
    switch message.kind {
    case .enrolled(let enrolled):
      takeBeginning()?.resume(returning: enrolled)
    case .answer(let answer):
      let (question, watch) = state.withLock {
        ($0.questions.removeValue(forKey: answer.number), $0.watches[answer.number])
      }
      question?.resume(returning: answer)
      if let failure = Self.failure(of: answer) {
        state.withLock { _ = $0.watches.removeValue(forKey: answer.number) }
        watch?.finish(throwing: failure)
      } else {
        watch?.yield(.list(answer.providers.providers, isLast: !answer.providers.more))
      }
    case .providersChanged(let changed):
      let watch = state.withLock { $0.watches[changed.watch] }
      watch?.yield(.changed(present: changed.present, gone: changed.gone))
    default: other(message)
    }
  }

  private func didEnd(_ fault: ProtocolFault) {
    let (beginning, questions, watches) = state.withLock { state in
      state.end = fault
      // Its events hold this client.
      state.lane = nil
      defer { (state.beginning, state.questions, state.watches) = (nil, [:], [:]) }
      return (state.beginning, state.questions, state.watches)
    }
    beginning?.resume(throwing: fault)
    for question in questions.values { question.resume(throwing: fault) }
    for watch in watches.values { watch.finish(throwing: fault) }
    ended(fault)
  }
}

private func closeBoth(_ control: Int32, _ bulk: Int32) {
  for number in [control, bulk] { closeDescriptor(number) }
}

private func closeDescriptor(_ number: Int32) { _ = try? Descriptor(adopting: number) }
