package import ServiceWire

/// A message of a lane: of its kinds a lane knows `Goodbye` alone, which is the last one of each side.
package protocol LaneMessage: WireMessage {
  /// The goodbye that this message is, if it is one.
  var saidGoodbye: WireGoodbye? { get }

  static func saying(_ goodbye: WireGoodbye) -> Self
}

extension WireChannelMessage: LaneMessage {
  package var saidGoodbye: WireGoodbye? { if case .goodbye(let goodbye)? = kind { goodbye } else { nil } }

  package static func saying(_ goodbye: WireGoodbye) -> WireChannelMessage { .with { $0.goodbye = goodbye } }
}

extension WireBrokerMessage: LaneMessage {
  package var saidGoodbye: WireGoodbye? { if case .goodbye(let goodbye)? = kind { goodbye } else { nil } }

  package static func saying(_ goodbye: WireGoodbye) -> WireBrokerMessage { .with { $0.goodbye = goodbye } }
}
