import Locks

/// A use of the runtime before its first authorization in this process, which is a programming
/// error.
///
/// This type is no part of the vendor's interface.
public struct GDMisuse: Sendable, Hashable, CustomStringConvertible {
  /// The name of the member that was used.
  public let call: String
  /// The reason, without the name.
  let reason: String

  /// The documented text.
  static let tooEarly = "Not authorized. Call [GDiOS authorize] first."
  static let noDelegate = "needs a delegate; set it first, or set CheckEventReceiver to false"

  /// A sentence for the developer.
  public var description: String { "\(call): \(reason)" }

  /// Ends the process with the sentence.
  public func endProcess() -> Never { fatalError("\(self)") }

  /// Collects misuses. Any thread may use it.
  ///
  ///     let record = GDMisuse.Record()
  ///     configuration.onMisuse = record.add
  public final class Record: Sendable {
    private let misuses = Guarded<[GDMisuse]>([])

    /// Makes an empty record.
    public init() {}

    /// The misuses so far, the oldest first.
    public var all: [GDMisuse] { misuses.withLock { $0 } }

    /// Adds one.
    public func add(_ misuse: GDMisuse) { misuses.withLock { $0.append(misuse) } }
  }
}
