/// Why push cannot be used at all. What happens to a channel is an event of the channel.
public enum PushError: Error, Sendable, Equatable {
  /// The URL of the relay is not `wss://HOST[:PORT]`, or `ws` to a loopback address.
  case invalidRelay(String)
  /// The key for the state has not 32 bytes.
  case invalidKey
  /// Another process, or another runtime of this one, has the state open.
  case stateInUse(String)
  /// The stored state is damaged, or the key is not the one with which it was written.
  case stateUnreadable(String)
  /// The authorities cannot be read.
  case invalidAuthorities(String)
}

extension PushError: CustomStringConvertible {
  public var description: String {
    switch self {
    case .invalidRelay(let text): "\(text) is no address of a relay: use wss://HOST:PORT"
    case .invalidKey: "the key for the state of push must have 32 bytes"
    case .stateInUse(let path): "the state in \(path) is used by another process"
    case .stateUnreadable(let text): "the state of push cannot be read: \(text)"
    case .invalidAuthorities(let text): "the authorities of the relay cannot be read: \(text)"
    }
  }
}
