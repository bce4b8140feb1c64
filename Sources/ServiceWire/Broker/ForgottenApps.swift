/// Apps that administrators have forgotten: whoever was away hears when it comes back with which of them no channel may go on.
package struct ForgottenApps: Sendable, Equatable {
  /// The last ones, in order.
  private var appIDs: [String] = []
  /// How many there ever were, and the number that was drawn at the beginning.
  package private(set) var count: UInt64 = 0
  private static let keptCountMax = 1000

  package init() {}

  /// Of a broker without one: who knows a count of before its state was lost does not take it for one of after.
  static func begun() -> ForgottenApps {
    var apps = ForgottenApps()
    apps.count = .random(in: 1...1 << 60)
    return apps
  }

  /// Throws `malformed`.
  init(_ wire: WireForgottenApps) throws(ProtocolFault) {
    guard wire.appIds.count <= Self.keptCountMax, UInt64(wire.appIds.count) <= wire.count else {
      throw .malformed
    }
    (appIDs, count) = (wire.appIds, wire.count)
  }

  var wire: WireForgottenApps {
    .with {
      $0.appIds = appIDs
      $0.count = count
    }
  }

  mutating func append(_ appID: String) {
    appIDs.append(appID)
    count += 1
    if appIDs.count > Self.keptCountMax { appIDs.removeFirst() }
  }

  /// Those after the first `known`; nil when that is not known any more.
  package func since(_ known: UInt64) -> [String]? {
    guard known <= count, count - known <= UInt64(appIDs.count) else { return nil }
    return Array(appIDs.suffix(Int(count - known)))
  }
}
