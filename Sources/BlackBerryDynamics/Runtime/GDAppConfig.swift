// The names are the vendor's.
// swift-format-ignore-file: AlwaysUseLowerCamelCase

import AppKinetics
import AppRuntime

// Keys of `GDiOS.getApplicationConfig()`. The vendor does not publish their texts: these are ours.

/// Array of `GDAppServer`.
public let GDAppConfigKeyServers = "servers"
/// Text of the owner's.
public let GDAppConfigKeyConfig = "config"
/// Whether data may not leave for apps other than those of this user: `NSNumber`, 0 or 1.
public let GDAppConfigKeyPreventDataLeakageOut = "preventDataLeakageOut"
/// Whether data may not come from apps other than those of this user: `NSNumber`, 0 or 1.
public let GDAppConfigKeyPreventDataLeakageIn = "preventDataLeakageIn"
/// `NSNumber`, 0 or 1.
public let GDAppConfigKeyPreventDictation = "preventDictation"
/// `NSNumber`, 0 or 1.
public let GDAppConfigKeyPreventCustomKeyboards = "preventCustomKeyboards"
/// `NSNumber`, 0 or 1.
public let GDAppConfigKeyPreventScreenRecording = "preventScreenRecording"
/// `NSNumber`, 0 or 1.
public let GDAppConfigKeyAllowWearable = "allowWearable"
/// `NSNumber`, 0 or 1.
public let GDAppConfigKeyAllowAiWritingTools = "allowWritingTools"
/// `NSNumber`, 0 or 1.
public let GDAppConfigKeyDetailedLogsOn = "detailedLogs"
/// `NSNumber`, 0 or 1.
public let GDAppConfigKeyPreventUserDetailedLogs = "preventUserDetailedLogs"
/// The user that the app is activated for: text.
public let GDAppConfigKeyUserId = "userId"
/// The user's principal name: text.
public let GDAppConfigKeyUserPrincipalName = "userPrincipalName"
/// The name of this installation: text.
public let GDAppConfigKeyInstanceIdentifier = "instanceIdentifier"
/// Whether a person has to type a password: `NSNumber`, 0 or 1.
public let GDAppConfigKeyProtectedByPassword = "protectedByPassword"
/// Dictionary of `NSNumber` by `GDProtocolsKeyTLSv1_0` and so on; missing unless the owner has set
/// it.
public let GDAppConfigKeyCommunicationProtocols = "communicationProtocols"
/// Text of the owner's, usually JSON; missing unless the owner has set it.
public let GDAppConfigKeyExtraInfo = "extraInfo"
/// Key in the dictionary of protocols.
public let GDProtocolsKeyTLSv1_0 = "TLSv1_0"
/// Key in the dictionary of protocols.
public let GDProtocolsKeyTLSv1_1 = "TLSv1_1"
/// Key in the dictionary of protocols.
public let GDProtocolsKeyTLSv1_2 = "TLSv1_2"

extension AppConfiguration {
  /// The configuration as code of the vendor's interface reads it.
  func values(instance: UUID?, isProtectedByPassword: Bool) -> [String: Any] {
    var values: [String: Any] = [
      GDAppConfigKeyServers: servers.map { GDAppServer($0) },
      GDAppConfigKeyProtectedByPassword: NSNumber(value: isProtectedByPassword),
    ]
    for flag in Flag.allCases { values[flag.key] = NSNumber(value: flags[flag] ?? false) }
    values[GDAppConfigKeyConfig] = config
    values[GDAppConfigKeyExtraInfo] = extraInfo
    values[GDAppConfigKeyUserId] = userID
    values[GDAppConfigKeyUserPrincipalName] = userPrincipalName
    values[GDAppConfigKeyInstanceIdentifier] = instance?.uuidString
    values[GDAppConfigKeyCommunicationProtocols] = communicationProtocols?.mapValues {
      NSNumber(value: $0)
    }
    return values
  }
}

extension AppConfiguration.Flag {
  fileprivate var key: String {
    switch self {
    case .preventDataLeakageOut: GDAppConfigKeyPreventDataLeakageOut
    case .preventDataLeakageIn: GDAppConfigKeyPreventDataLeakageIn
    case .preventDictation: GDAppConfigKeyPreventDictation
    case .preventCustomKeyboards: GDAppConfigKeyPreventCustomKeyboards
    case .preventScreenRecording: GDAppConfigKeyPreventScreenRecording
    case .allowWearable: GDAppConfigKeyAllowWearable
    case .allowWritingTools: GDAppConfigKeyAllowAiWritingTools
    case .detailedLogs: GDAppConfigKeyDetailedLogsOn
    case .preventUserDetailedLogs: GDAppConfigKeyPreventUserDetailedLogs
    }
  }
}
