package import SodiumPrimitives

/// For which past of a sender's container its message numbers hold, for one receiver
/// (DELIVERY-PROTOCOL.md, "Numbers").
package struct Incarnation: Hashable, Sendable {
  package static let generations: Range<UInt64> = 1..<1 << 62

  /// In ``generations``; a greater one is newer.
  package let generation: UInt64
  /// 16 random bytes, which tell incarnations of one generation apart.
  package let draw: Identifier

  /// Nil for a generation that cannot be.
  package init?(generation: UInt64, draw: Identifier) {
    guard Self.generations.contains(generation) else { return nil }
    (self.generation, self.draw) = (generation, draw)
  }

  /// Draws a new incarnation. Nil if there is no such generation.
  static func random(generation: UInt64) -> Incarnation? {
    Incarnation(generation: generation, draw: .random())
  }
}

extension ByteWriter {
  mutating func append(_ incarnation: Incarnation) {
    append(incarnation.generation)
    append(incarnation.draw)
  }
}

extension ByteReader {
  mutating func incarnation() throws(MalformedBytes) -> Incarnation {
    let generation = try read(UInt64.self)
    guard let incarnation = Incarnation(generation: generation, draw: try identifier()) else {
      throw MalformedBytes(what: "a generation that cannot be")
    }
    return incarnation
  }
}
