import SodiumPrimitives

extension Identifier {
  init(repeating byte: UInt8) { self.init([UInt8](repeating: byte, count: Self.byteCount)) }
}
