/// Apps that administrators have forgotten: whoever was away hears when it comes back with which of them no channel may go on.
package struct ForgottenApps: Sendable, Equatable {
  /// The last ones, in order.
  private var appIDs: [String] = []
  /// How many there ever were, and a number that was drawn at the beginning: who knows a count of before the broker's state was lost does
  /// not take it for one of after.
  package private(set) var count = UInt64.random(in: 1...1 << 60)
  private static let keptCountMax = 1000

  package init() {}

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
