import Foundation
package import ServiceValues

extension Caller {
  /// Nil for one that says nothing, or something that cannot be.
  package init?(_ wire: WireCaller) {
    let application = wire.appID.isEmpty ? nil : try? ApplicationID(wire.appID)
    let fingerprint = wire.keyFingerprint.isEmpty ? nil : wire.keyFingerprint
    guard (application != nil) == !wire.appID.isEmpty, application != nil || fingerprint != nil,
      fingerprint.map({ $0.count == KeyFingerprint.byteCount }) ?? true
    else { return nil }
    self.init(application: application, fingerprint: fingerprint)
  }

  package var wire: WireCaller {
    .with {
      $0.appID = application?.text ?? ""
      $0.keyFingerprint = fingerprint ?? Data()
    }
  }
}
