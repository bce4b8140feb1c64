import ServiceValues

@testable import ServiceWire

extension BrokerOutput {
  /// A short text for tests of the values that `BrokerState` consists of: questions by their numbers, errors
  /// by their names.
  var text: String {
    switch self {
    case .send(let message, to: _):
      switch message.kind {
      case .waiting(let waiting): "wait \(waiting.number) \(waiting.reason == .start ? "start" : "unlock")"
      case .answer(let answer):
        if case .failure(let failure) = answer.kind {
          "fail \(answer.number) \(ServicesError.Code(rawValue: Int32(failure.error)).name)"
            + (failure.detail.isEmpty ? "" : ": \(failure.detail)")
        } else {
          "done \(answer.number)"
        }
      default: "\(message)"
      }
    case .start(let appID, _, _): "start \(appID)"
    case .endProgram(let appID): "end \(appID)"
    case .askCompositor(let appID, let change): "front \(appID ?? "none") \(change.number)"
    default: "\(self)"
    }
  }
}
