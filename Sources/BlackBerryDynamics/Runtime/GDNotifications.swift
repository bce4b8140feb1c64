// The names are the vendor's.
// swift-format-ignore-file: AlwaysUseLowerCamelCase

extension Notification.Name {
  /// Posted for each property of `GDState` that has changed, on `GDConfiguration.callbackQueue`.
  /// The object is `GDiOS.state`; `userInfo` has `GDStateChangeKeyProperty` and
  /// `GDStateChangeKeyCopy`.
  public static let GDStateChange = Notification.Name("GDStateChangeNotification")
  /// Posted with the event `remoteSettingsUpdate`, before it. The object is `GDiOS.state`, as in
  /// the next three.
  public static let GDRemoteSettingsUpdate = Notification.Name("GDRemoteSettingsUpdateNotification")
  /// Posted with the event `servicesUpdate`.
  public static let GDServicesUpdate = Notification.Name("GDServicesUpdateNotification")
  /// Posted with the event `policyUpdate`.
  public static let GDPolicyUpdate = Notification.Name("GDPolicyUpdateNotification")
  /// Posted with the event `entitlementsUpdate`.
  public static let GDEntitlementsUpdate = Notification.Name("GDEntitlementsUpdateNotification")
}

extension Notification.Name {
  /// Posted when `GDState.activationState` has changed. The object is `GDiOS.state`; `userInfo` has `BBDActivationStateKey`.
  public static let GDActivationChange = Notification.Name("GDActivationChangeNotification")
  /// Never posted: there is no console to move to.
  public static let GDContainerMigrationPending = Notification.Name("GDContainerMigrationPendingNotification")
  /// Never posted.
  public static let GDContainerMigrationCompleted = Notification.Name(
    "GDContainerMigrationCompletedNotification")
}

/// Key of the state (`NSNumber`, of `BBDActivationState`) in `userInfo` of `GDActivationChange`.
public let BBDActivationStateKey = "BBDActivationStateKey"

/// Key of the changed property's name (`String`) in `userInfo` of `GDStateChange`.
public let GDStateChangeKeyProperty = "GDStateChangeKeyProperty"
/// Key of the state after the change (`GDState`) in `userInfo` of `GDStateChange`.
public let GDStateChangeKeyCopy = "GDStateChangeKeyCopy"

/// The name of `GDState.isAuthorized`.
public let GDKeyIsAuthorized = "isAuthorized"
/// The name of `GDState.reasonNotAuthorized`.
public let GDKeyReasonNotAuthorized = "reasonNotAuthorized"
/// The name of `GDState.userInterfaceState`.
public let GDKeyUserInterfaceState = "userInterfaceState"
/// The name of `GDState.currentScreen`.
public let GDKeyCurrentScreen = "currentScreen"
/// The name of `GDState.activationState`.
public let BBDKeyActivationState = "activationState"
