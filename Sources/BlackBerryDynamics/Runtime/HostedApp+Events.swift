import AppRuntime
import Locks

/// What the app is told, on the queue of callbacks.
extension HostedApp {
  /// Called by the runtime on the queue of callbacks.
  func received(_ event: AuthorizationEvent) {
    guard let type = GDAppEventType(rawValue: event.kind.rawValue) else { return }
    // The launcher gets its delegate before the app can use it.
    _ = launcher
    let isUpdate = type.notification != nil
    tell(type, event.code, isUpdate ? "" : event.message, isWithdrawal: event.withdrawal != nil)
  }

  /// Tells an event that the runtime does not know of.
  func tellLater(
    _ type: GDAppEventType, _ code: AuthorizationCode, _ message: String? = nil, isWithdrawal: Bool = false
  ) {
    configuration.callbackQueue.async { self.tell(type, code, message ?? "", isWithdrawal: isWithdrawal) }
  }

  /// For the queue of callbacks.
  func tell(
    _ type: GDAppEventType, _ code: AuthorizationCode, _ message: String, isWithdrawal: Bool = false
  ) {
    guard let code = GDAppResultCode(code) else { return }
    let event = GDAppEvent(type: type, code: code, message: message)
    switch type {
    case .notAuthorized, .backgroundNotAuthorized:
      state.withLock { state in
        // A withdrawal is the reason while it lasts, and not longer.
        if !isWithdrawal { state.lastFailure = code }
        state.isOutcomeTold = true
      }
    case .authorized, .backgroundAuthorized:
      state.withLock { ($0.lastFailure, $0.isOutcomeTold) = (.errorNone, true) }
    default: break
    }
    tellState()
    if let name = event.type.notification {
      configuration.onCallback?(GDCallback(name.rawValue))
      NotificationCenter.default.post(name: name, object: GDState.live)
    }
    guard let delegate = state.withLock({ $0.delegate }) else { return }
    configuration.onCallback?(GDCallback("handle", "\(type.rawValue) \(code.rawValue)"))
    delegate.handle(event)
  }

  /// Posts a notification for each property that is another one than at the last call. For the
  /// queue of callbacks alone, so that notifications come in the order of the changes.
  func tellState() {
    let now = values
    let before = state.withLock { state in
      defer { state.told = now }
      return state.told
    }
    let changed = now.names(differingFrom: before)
    if changed.isEmpty { return }
    let copy = GDState(now)
    if now.activationState != before.activationState {
      configuration.onCallback?(GDCallback(Notification.Name.GDActivationChange.rawValue))
      NotificationCenter.default.post(
        name: .GDActivationChange, object: GDState.live,
        userInfo: [BBDActivationStateKey: NSNumber(value: now.activationState.rawValue)])
    }
    for name in changed {
      configuration.onCallback?(GDCallback("GDStateChangeNotification", name))
      NotificationCenter.default.post(
        name: .GDStateChange, object: GDState.live,
        userInfo: [GDStateChangeKeyProperty: name, GDStateChangeKeyCopy: copy])
    }
  }

  /// The state as the vendor's properties have it.
  var values: GDState.Values {
    let (runtime, lastFailure, isAsking) = state.withLock {
      ($0.runtime, $0.lastFailure, $0.asking == .underWay)
    }
    var values = GDState.Values()
    guard let authorization = runtime?.authorization else {
      values.reasonNotAuthorized = lastFailure
      return values
    }
    values.isAuthorized = authorization.isAuthorized
    values.reasonNotAuthorized =
      authorization.shown.flatMap { GDAppResultCode(rawValue: $0.code.rawValue) } ?? lastFailure
    switch authorization.presentation {
    case .app: values.userInterfaceState = .GDUIStateApplicationInFront
    case .asking: values.userInterfaceState = .GDUIStateGDLibraryInFront
    case .nothing: values.userInterfaceState = isAsking ? .GDUIStateGDLibraryInFront : .GDUIStateNone
    }
    values.currentScreen = values.userInterfaceState == .GDUIStateGDLibraryInFront ? .other : .none
    values.activationState =
      BBDActivationState(rawValue: authorization.activation.rawValue) ?? .notActivated
    return values
  }
}

extension GDAppResultCode {
  /// An activation that failed has the codes of one by a person: an app that is not activated by a program expects no others.
  init?(_ code: AuthorizationCode) {
    switch code {
    case .credentialsFailed: self = .errorProvisioningFailed
    case .activationUnknown, .noNetwork, .serverCommunicationFailed, .integrityFailed:
      self = .errorActivationFailed
    default: self.init(rawValue: code.rawValue)
    }
  }
}

extension GDAppEventType {
  /// The notification that is posted with the event.
  var notification: Notification.Name? {
    switch self {
    case .remoteSettingsUpdate: .GDRemoteSettingsUpdate
    case .servicesUpdate: .GDServicesUpdate
    case .policyUpdate: .GDPolicyUpdate
    case .entitlementsUpdate: .GDEntitlementsUpdate
    default: nil
    }
  }
}
