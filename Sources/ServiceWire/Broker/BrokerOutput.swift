/// What a ``BrokerState`` wants done, in this order.
package enum BrokerOutput: Sendable, Equatable {
  case send(WireBrokerMessage, to: ConnectionNumber)
  /// Say goodbye if the connection takes it at once, and close. The state has forgotten the connection.
  case close(ConnectionNumber, ProtocolFault, detail: String)
  /// Make two socket pairs, and send each side its message with one end of each.
  case introduce(
    dialler: ConnectionNumber, WireBrokerMessage, acceptor: ConnectionNumber, WireBrokerMessage)
  case start(appID: String, program: String, arguments: [String])
  /// ``BrokerState/compositorAnswered(_:isDone:now:)`` follows.
  case askCompositor(appID: String?, FrontChange)
  /// What ``BrokerState/records`` has is to be kept.
  case save
}

package struct ConnectionNumber: Hashable, Sendable, Comparable {
  package let number: UInt64

  package init(_ number: UInt64) { self.number = number }

  package static func < (left: Self, right: Self) -> Bool { left.number < right.number }
}

package struct FrontChange: Hashable, Sendable {
  package let number: UInt64
}
