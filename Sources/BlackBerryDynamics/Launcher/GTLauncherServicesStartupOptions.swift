// The names are the vendor's.
// swift-format-ignore-file: AlwaysUseLowerCamelCase

/// Options of `GTLauncherViewController.startServices(options:)`, which ignores them.
@available(*, deprecated, message: "the runtime starts the launcher")
public struct GTLauncherServicesStartupOptions: OptionSet, Sendable {
  /// The bits.
  public let rawValue: Int

  /// Makes options of any bits.
  public init(rawValue: Int) { self.rawValue = rawValue }

  /// Bit 0.
  public static let internalGDAuthTokenAndPushConnectionManagement = Self(rawValue: 1 << 0)
  /// Bit 1.
  public static let hostGDAuthTokenManagement = Self(rawValue: 1 << 1)
  /// Bit 2.
  public static let hostGDPushConnectionManagement = Self(rawValue: 1 << 2)
}

/// Bit 0 of the options.
@available(*, deprecated, message: "the runtime starts the launcher")
public let GTLInternalGDAuthTokenAndPushConnectionManagement = GTLauncherServicesStartupOptions
  .internalGDAuthTokenAndPushConnectionManagement
/// Bit 1 of the options.
@available(*, deprecated, message: "the runtime starts the launcher")
public let GTLHostGDAuthTokenManagement = GTLauncherServicesStartupOptions.hostGDAuthTokenManagement
/// Bit 2 of the options.
@available(*, deprecated, message: "the runtime starts the launcher")
public let GTLHostGDPushConnectionManagement = GTLauncherServicesStartupOptions
  .hostGDPushConnectionManagement
