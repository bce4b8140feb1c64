import Foundation
import ServiceValues
import ServiceWire

/// What the broker tells others of this app.
final class BrokerRegistration {
  private unowned let core: Core
  /// The app took its registration back, or never wanted one.
  var isTakenBack = false
  /// What the broker took last.
  private var registered: WireRegister?
  /// A registration is on its way, and what has changed since is to follow it.
  private var isUnderWay = false
  private var isDue = false
  /// When it is sent once more.
  private(set) var retryAt: UInt64?

  init(_ core: Core) { self.core = core }

  private var wanted: WireRegister {
    let application = core.runtime.application
    return .with {
      $0.name = application.name
      $0.entitlementID = application.entitlementID
      $0.entitlementVersion = application.entitlementVersion.text
      $0.icon = application.icon ?? Data()
      $0.services = core.services.registered
      $0.servers = application.servers.map(\.wire)
      $0.callers = (core.services.callers ?? []).map(\.wire).sorted {
        ($0.appID, KeyFingerprint.text($0.keyFingerprint)) < (
          $1.appID, KeyFingerprint.text($1.keyFingerprint)
        )
      }
    }
  }

  /// The app starts again while it is connected.
  func ask(_ starter: @escaping BrokerSession.Starter) {
    guard isTakenBack else { return starter(.success(())) }
    isTakenBack = false
    core.broker.ask(.register(wanted)) { core, result in
      // The connection was about to end, which nobody knew: the next one registers.
      let hasEnded = core.broker.phase != .up && core.life == .running && !core.broker.hasGivenUp
      if case .failure(let error) = result, error.code == .brokerUnavailable, hasEnded,
        core.broker.mustConnect(for: starter)
      {
        return core.broker.connect()
      }
      starter(result.map { _ in })
    }
  }

  /// Over a new connection. `earlier` was taken before, and takes the place of what the broker refuses now.
  func begin(earlier: WireRegister? = nil) {
    let message = earlier ?? wanted
    retryAt = nil
    core.broker.put(.register(message)) { core, result in
      let registration = core.broker.registration
      switch result {
      case .success:
        registration.registered = message
        core.broker.isConnected()
        // Something else is offered by now.
        if earlier == nil, registration.wanted != message { registration.renew() }
      // Else the connection has ended, and another one may go better.
      case .failure(let error) where core.broker.phase == .registering:
        if earlier == nil, error.code == .invalidRegistration, let before = registration.registered,
          before != message
        {
          core.runtime.logger.error("the broker refuses what is offered", metadata: ["error": "\(error)"])
          return registration.begin(earlier: before)
        }
        core.broker.registrationFailed(error)
      case .failure: break
      }
    }
  }

  /// Something else is offered. Of a connection that is on its way: `begin` looks again when it is there. One at a time: what is offered
  /// meanwhile goes with the next.
  func renew() {
    retryAt = nil
    guard core.broker.phase == .up, !isTakenBack else { return }
    guard !isUnderWay else {
      isDue = true
      return
    }
    isUnderWay = true
    let message = wanted
    core.broker.ask(.register(message)) { core, result in
      core.broker.registration.renewed(message, result.map { _ in })
    }
  }

  /// When the broker took too many from here. Milliseconds.
  private static let pause: UInt64 = 2_000

  private func renewed(_ message: WireRegister, _ result: Result<Void, ServicesError>) {
    isUnderWay = false
    let isDue = isDue
    self.isDue = false
    switch result {
    case .success: registered = message
    case .failure(let error) where error.code == .limitExceeded:
      let next = core.runtime.now + Self.pause
      retryAt = next
      return core.wake(at: next)
    case .failure(let error):
      core.runtime.logger.error(
        "the broker did not take what is offered", metadata: ["error": "\(error)"])
    }
    if isDue { renew() }
  }

  func tick(_ now: UInt64) {
    if let retryAt, now >= retryAt { renew() }
  }
}
