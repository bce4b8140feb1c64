import AppKinetics
import AppRuntime
import Locks

extension GDiOS {
  /// Lists the versions of an entitlement, the earliest first, and returns at once.
  ///
  /// `callbackBlock` is called once, on `GDConfiguration.callbackQueue`: with the versions, or with
  /// nil and an `NSError`. An empty list means that the user is not entitled. The owner decides
  /// about the app's own entitlement; versions of other entitlements are those of the apps that
  /// the broker knows. Codes of errors are those of the documented general range: -1 when the broker
  /// cannot be reached, -2 while the app is not authorized.
  public func getEntitlementVersions(
    for identifier: String, callbackBlock: @escaping ([GDVersion]?, (any Error)?) -> Void
  ) {
    let app = HostedApp.current
    let callback = EntitlementsCallback(call: callbackBlock)
    let queue = app.configuration.callbackQueue
    do {
      let services = try app.opened("GDiOS.getEntitlementVersions").services
      Task.detached {
        do {
          let versions = try await app.entitlementVersions(of: identifier, services)
          queue.async { callback.call(versions, nil) }
        } catch {
          app.configuration.logger.error("entitlements are not known", metadata: ["error": "\(error)"])
          let error = EntitlementsError.of(error)
          queue.async { callback.call(nil, error) }
        }
      }
    } catch {
      let error = EntitlementsError.of(error)
      queue.async { callback.call(nil, error) }
    }
  }
}

extension HostedApp {
  /// Throws `brokerUnavailable` and other `ServicesError`s of discovery, unless the entitlement is
  /// the app's own.
  fileprivate func entitlementVersions(
    of identifier: String, _ services: AppServices
  ) async throws -> [GDVersion] {
    let texts: Set<String>
    if identifier == services.application.entitlementID {
      let own = services.application.entitlementVersion
      let entitlements = state.withLock { $0.runtime }?.entitlements ?? [identifier: [own]]
      texts = Set(entitlements[identifier, default: []].map(\.text))
    } else {
      let providers = try await services.providers(includesOwn: true, includesNonProviders: true)
      texts = Set(providers.filter { $0.entitlementID == identifier }.map(\.entitlementVersion))
    }
    // The version of another app is its own word.
    return texts.compactMap { GDVersion(string: $0) }.sorted { $0.isLessThan($1) }
  }
}

/// Errors of entitlements, in the range of general errors.
private enum EntitlementsError {
  static let domain = "GDEntitlementVersionsErrorDomain"
  static let brokerUnavailable = -1
  static let notAuthorized = -2

  static func of(_ error: any Error) -> NSError {
    NSError(
      domain: domain, code: error is AppRuntimeError ? notAuthorized : brokerUnavailable,
      userInfo: [NSLocalizedDescriptionKey: "\(error)", NSUnderlyingErrorKey: error])
  }
}

/// The vendor's type of the closure is not sendable.
private struct EntitlementsCallback: @unchecked Sendable {
  // Invariant: it is called once, on the queue of callbacks.
  let call: ([GDVersion]?, (any Error)?) -> Void
}
