import ContainerStore
import ServiceWire
import SodiumPrimitives

extension Incarnation {
  /// Nil for one that no offer has.
  init?(_ wire: WireIncarnation) {
    guard let draw = Identifier(exactly: wire.draw) else { return nil }
    self.init(generation: wire.generation, draw: draw)
  }
}

extension WireIncarnation {
  init(_ incarnation: Incarnation) {
    self = .with {
      $0.generation = incarnation.generation
      $0.draw = incarnation.draw.data
    }
  }
}
