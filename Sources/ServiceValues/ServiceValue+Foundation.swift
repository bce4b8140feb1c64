public import Foundation

extension ServiceValue {
  /// Makes ``bytes(_:)`` of the data.
  public init(_ data: Data) { self = .bytes([UInt8](data)) }

  /// The contents of ``bytes(_:)``; nil for every other kind.
  public var dataValue: Data? { bytesValue.map { Data($0) } }

  /// Converts Foundation's objects and Swift's own values: texts, numbers, `Bool`, `NSNull`, `Data`, arrays and dictionaries with texts as keys.
  ///
  /// `Bool` is a boolean, `Int` and the other integers are integers, `Double` and `Float` are numbers, and an
  /// `NSNumber` is what it was made from. `nil` in an optional is null. `[UInt8]` is an array of integers, as
  /// it is in Objective-C. Throws `invalidParams` with the path and the type of anything else, and for what
  /// ``validate(limits:root:)`` refuses.
  public init(foundation value: Any, limits: Limits = .default, root: String = "params") throws(ServicesError)
  {
    do throws(Problem) {
      var conversion = FoundationConversion(limits: limits, path: ServicePath(root))
      self = try conversion.value(of: value)
    } catch {
      throw error.error(.invalidParams)
    }
    try validate(limits: limits, root: root)
  }

  /// The value as objects of Foundation: `String`, `NSNumber`, `NSNull`, `Data`, `[Any]` and `[String: Any]`.
  /// Numbers are `NSNumber`, so that `as? Int` and `as? Double` work as they do on Apple platforms.
  public var foundationValue: Any {
    switch self {
    case .string(let value): value
    case .number(let value): NSNumber(value: value)
    case .integer(let value): NSNumber(value: value)
    case .boolean(let value): NSNumber(value: value)
    case .null: NSNull()
    case .bytes(let value): Data(value)
    case .array(let elements): elements.map(\.foundationValue)
    case .object(let members): members.mapValues(\.foundationValue)
    }
  }
}
