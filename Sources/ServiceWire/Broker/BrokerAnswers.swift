import Foundation
import ServiceValues

/// A question of a client.
struct BrokerQuestion: Hashable, Sendable {
  let asker: ConnectionNumber
  /// The client's own number for it.
  let number: UInt64
}

/// Why a question is not done.
enum BrokerRefusal: Error {
  /// The question is a fault that ends its connection.
  case fault(ProtocolFault, detail: String = "")
  /// The answer is an error.
  case answer(ServicesError.Code, detail: String = "")

  /// Throws `malformed` if a peer's text is no app id: only checked ids may be compared or looked
  /// up.
  static func checkAppID(_ text: String) throws(BrokerRefusal) {
    guard (try? ApplicationID(text)) != nil else { throw .fault(.malformed) }
  }
}

/// The open questions, and the outputs in their order. A question is answered once at most, and
/// never after its connection has ended.
struct BrokerAnswers: Sendable {
  private var open: [ConnectionNumber: Set<UInt64>] = [:]
  private var outputs: [BrokerOutput] = []

  func isOpen(_ question: BrokerQuestion) -> Bool { open[question.asker]?.contains(question.number) ?? false }

  func openCount(of asker: ConnectionNumber) -> Int { open[asker]?.count ?? 0 }

  mutating func open(_ question: BrokerQuestion) {
    open[question.asker, default: []].insert(question.number)
  }

  /// Ends a question that is answered in another way. Returns whether it was open.
  @discardableResult
  mutating func close(_ question: BrokerQuestion) -> Bool {
    open[question.asker]?.remove(question.number) != nil
  }

  /// The connection has ended, with all of its questions.
  mutating func end(_ asker: ConnectionNumber) { open[asker] = nil }

  /// Answers with an error. Does nothing when the question is not open.
  mutating func fail(_ question: BrokerQuestion, _ code: ServicesError.Code, detail: String = "") {
    guard close(question) else { return }
    outputs.append(.send(.failure(question.number, code, detail), to: question.asker))
  }

  /// Answers with what `fill` adds. Does nothing when the question is not open.
  mutating func done(_ question: BrokerQuestion, _ fill: (inout WireAnswer) -> Void = { _ in }) {
    guard close(question) else { return }
    outputs.append(.send(.answer(question.number, fill), to: question.asker))
  }

  mutating func send(to number: ConnectionNumber, _ fill: (inout WireBrokerMessage) -> Void) {
    outputs.append(.send(.with(fill), to: number))
  }

  mutating func append(_ output: BrokerOutput) { outputs.append(output) }

  /// The outputs since the last call.
  mutating func takeOutputs() -> [BrokerOutput] {
    defer { outputs = [] }
    return outputs
  }
}

extension WireBrokerMessage {
  static func answer(_ question: UInt64, _ fill: (inout WireAnswer) -> Void) -> Self {
    .with {
      $0.answer.number = question
      fill(&$0.answer)
    }
  }

  static func failure(_ question: UInt64, _ code: ServicesError.Code, _ detail: String = "") -> Self {
    answer(question) {
      $0.failure.error = UInt32(code.rawValue)
      $0.failure.detail = detail
    }
  }
}
