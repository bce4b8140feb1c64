internal import Locks
package import PushWire

/// A process of the relay that holds connections of devices.
package protocol RelayNode: AnyObject, Sendable {
  func isConnected(_ channel: ChannelNumber) -> Bool
  /// Events of the channel up to this number may have reached its device.
  func sentThrough(_ channel: ChannelNumber) -> UInt64
  /// An event is durable, and is sent if the channel is connected here.
  func stored(_ channel: ChannelNumber, _ event: ChannelEvent, as number: EventNumber)
  /// The device has a newer connection on another node.
  func replaced(_ device: DeviceKey)
}

/// Connects the nodes of a relay, which share a store: a back end asks any of them, and the device is
/// connected to one. What gets lost between nodes delays an event and loses none, since a node finds it in
/// the store with the next one of its channel, or when the device connects again.
package protocol NodeWire: Sendable {
  func attach(_ node: any RelayNode)
  func detach(_ node: any RelayNode)
  func isConnected(_ channel: ChannelNumber) async -> Bool
  func sentThrough(_ channel: ChannelNumber) async -> UInt64
  func publish(_ channel: ChannelNumber, _ event: ChannelEvent, as number: EventNumber) async
  /// Tells all nodes but `node` that the device is connected there.
  func connected(_ device: DeviceKey, to node: any RelayNode) async
}

/// The wire between nodes of one process.
package final class ProcessWire: NodeWire {
  private let nodes = Guarded<[any RelayNode]>([])

  package init() {}

  package func attach(_ node: any RelayNode) { nodes.withLock { $0.append(node) } }

  package func detach(_ node: any RelayNode) { nodes.withLock { $0.removeAll { $0 === node } } }

  package func isConnected(_ channel: ChannelNumber) async -> Bool {
    all.contains { $0.isConnected(channel) }
  }

  package func sentThrough(_ channel: ChannelNumber) async -> UInt64 {
    all.map { $0.sentThrough(channel) }.max() ?? 0
  }

  package func publish(_ channel: ChannelNumber, _ event: ChannelEvent, as number: EventNumber) async {
    for node in all { node.stored(channel, event, as: number) }
  }

  package func connected(_ device: DeviceKey, to node: any RelayNode) async {
    for other in all where other !== node { other.replaced(device) }
  }

  private var all: [any RelayNode] { nodes.withLock { $0 } }
}
