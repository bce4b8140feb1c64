public import SodiumPrimitives

/// The number under which one segment is sealed and no other: the session of the writer, and a
/// counter in it.
public struct WriteNumber: Hashable, Sendable {
  public var session: Identifier
  public var counter: UInt64

  public init(session: Identifier, counter: UInt64) {
    self.session = session
    self.counter = counter
  }

  public func advanced(by count: Int) -> WriteNumber {
    WriteNumber(session: session, counter: counter + UInt64(count))
  }
}
