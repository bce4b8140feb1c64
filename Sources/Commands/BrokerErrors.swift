import ContainerStore
import LocalTransport
import ServiceBroker
import ServiceWire
import UnixSockets

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

/// What a command that asks a broker may meet, with the texts that it has already.
protocol BrokerReporting: Error {
  var reportCode: String { get }
  var reportMessage: String { get }
  var reportDetail: String? { get }
  var reportRemedy: String { get }
  var reportStatus: ExitStatus { get }
}

extension BrokerReporting {
  var reportDetail: String? { nil }
}

/// How a connection to the broker ended.
extension ProtocolFault: BrokerReporting {
  var reportCode: String { "\(self)" }
  var reportMessage: String { text }

  var reportRemedy: String {
    switch self {
    case .brokerNotTrusted:
      "name the state directory of the broker that runs, or start the one that belongs to it"
    case .keyNotPinned:
      "name the state directory of the broker that runs: its administrator.key is what it takes"
    default: "look at what the broker has logged, then try again"
    }
  }

  var reportStatus: ExitStatus { self == .keyNotPinned ? .wrongKey : .failure }
}

extension SocketError: BrokerReporting {
  var reportCode: String {
    switch self {
    case .nobodyAnswers: "brokerUnavailable"
    case .addressInUse: "addressInUse"
    case .unsafeDirectory: "unsafeDirectory"
    default: "socketFailed"
    }
  }

  var reportMessage: String {
    if case .nobodyAnswers(let path) = self { "no broker runs: nobody answers at \(path)" } else { what }
  }

  var reportRemedy: String {
    if case .nobodyAnswers = self { "start the broker (dynamics broker), or name its socket" } else { remedy }
  }

  var reportStatus: ExitStatus {
    switch self {
    case .nobodyAnswers: .notFound
    case .addressInUse: .locked
    default: .failure
    }
  }
}

extension BrokerKeyError: BrokerReporting {
  var reportCode: String { "brokerKeyMissing" }
  var reportMessage: String { what }
  var reportRemedy: String { remedy }
  var reportStatus: ExitStatus { .notFound }
}

extension ServiceBrokerError: BrokerReporting {
  var reportCode: String {
    switch self {
    case .stateDamaged: "stateDamaged"
    case .noState: "stateDirectoryInTheWay"
    case .stateInUse: "stateInUse"
    case .callFailed: "nativeFailed"
    }
  }

  var reportMessage: String { what }
  var reportRemedy: String { remedy }

  var reportStatus: ExitStatus {
    switch self {
    case .stateDamaged: .damage
    case .noState: .inTheWay
    case .stateInUse: .locked
    case .callFailed(_, _, let errno): noSpace.contains(errno) ? .diskFull : .failure
    }
  }
}
