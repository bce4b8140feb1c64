/// The Swift types that stand for one simple value each.
protocol SimpleParameter {
  /// Nil when it does not fit.
  var serviceValue: ServiceValue? { get }

  /// Nil when the value is of another kind or does not fit.
  init?(serviceValue: ServiceValue)

  /// The kind that is read, for errors.
  static var kind: ServiceValue.Kind { get }
}

extension String: SimpleParameter {
  static let kind = ServiceValue.Kind.string
  var serviceValue: ServiceValue? { .string(self) }

  init?(serviceValue: ServiceValue) {
    guard let value = serviceValue.stringValue else { return nil }
    self = value
  }
}

extension Bool: SimpleParameter {
  static let kind = ServiceValue.Kind.boolean
  var serviceValue: ServiceValue? { .boolean(self) }

  init?(serviceValue: ServiceValue) {
    guard let value = serviceValue.booleanValue else { return nil }
    self = value
  }
}

extension Double: SimpleParameter {
  static let kind = ServiceValue.Kind.number
  var serviceValue: ServiceValue? { .number(self) }

  init?(serviceValue: ServiceValue) {
    guard let value = serviceValue.numberValue else { return nil }
    self = value
  }
}

extension Float: SimpleParameter {
  static let kind = ServiceValue.Kind.number
  var serviceValue: ServiceValue? { .number(Double(self)) }

  /// Rounds; nil beyond the greatest `Float`.
  init?(serviceValue: ServiceValue) {
    guard let value = serviceValue.numberValue, Float(value).isFinite == value.isFinite else { return nil }
    self = Float(value)
  }
}

extension SimpleParameter where Self: FixedWidthInteger {
  static var kind: ServiceValue.Kind { .integer }
  var serviceValue: ServiceValue? { Int64(exactly: self).map { .integer($0) } }

  init?(serviceValue: ServiceValue) {
    guard let value = serviceValue.integerValue else { return nil }
    self.init(exactly: value)
  }
}

extension Int: SimpleParameter {}
extension Int8: SimpleParameter {}
extension Int16: SimpleParameter {}
extension Int32: SimpleParameter {}
extension Int64: SimpleParameter {}
extension UInt: SimpleParameter {}
extension UInt8: SimpleParameter {}
extension UInt16: SimpleParameter {}
extension UInt32: SimpleParameter {}
extension UInt64: SimpleParameter {}
