import CPosix

/// Descriptors that travel with one message, in their order. Those that nobody took are closed at the list's end.
public struct DescriptorList: ~Copyable, Sendable {
  /// The most descriptors that one message carries (fixed by Linux: `SCM_MAX_FD`).
  public static let messageCountMax = Int(CPOSIX_MESSAGE_DESCRIPTORS_MAX)

  private(set) var numbers: [Int32] = []

  public init() {}

  /// Descriptors that the system handed over, closed by exec already.
  init(made numbers: [Int32]) { self.numbers = numbers }

  deinit {
    for number in numbers { _ = Descriptor(made: number) }
  }

  public var count: Int { numbers.count }

  public var isEmpty: Bool { numbers.isEmpty }

  public mutating func append(_ descriptor: consuming Descriptor) { numbers.append(descriptor.take()) }

  /// The first descriptor, which leaves the list; nil when the list is empty.
  public mutating func popFirst() -> Descriptor? {
    numbers.isEmpty ? nil : Descriptor(made: numbers.removeFirst())
  }
}
