import ArgumentParser
import Configuration
import Foundation
import PushRelay
import PushWire
import SystemPackage

/// The settings of a relay that are no options of the command: from a JSON file, and from environment
/// variables, which count more. `waitingEvents` in the file is `PUSH_WAITING_EVENTS` in the environment.
struct RelaySettings {
  /// Every setting, and what it does to the configuration.
  private static let integers: [String: @Sendable (inout RelayConfiguration, Int) -> Void] = [
    "windowEvents": { $0.hub.windowCount = $1 },
    "windowBytes": { $0.hub.windowByteCount = $1 },
    "channelWindowEvents": { $0.hub.channelWindowCount = $1 },
    "channelWindowBytes": { $0.hub.channelWindowByteCount = $1 },
    "writeSeconds": { $0.hub.writeTime = Int64($1) * 1000 },
    "greetingSeconds": { $0.greetingTime = Int64($1) * 1000 },
    "heartbeatSeconds": { $0.heartbeatSecondsMax = UInt32(clamping: min(3600, max(10, $1))) },
    "channelsOfDevice": { $0.channelsOfDevice = $1 },
    "channels": { $0.channelsMax = $1 },
    "devices": { $0.devices = $1 },
    "newConnections": { $0.newConnections = $1 },
    "unsentBytes": { $0.unsentBytes = $1 },
    "waitingEvents": { $0.waitingEvents = $1 },
    "waitingBytes": { $0.waitingBytes = $1 },
    "waitingBytesOfRelay": { $0.waitingBytesOfRelay = $1 },
    "tokenRate": { $0.tokenRate = Double($1) },
    "tokenBurst": { $0.tokenBurst = Double($1) },
    "addressRate": { $0.addressRate = Double($1) },
    "newChannelsOfDevice": { $0.newChannelsOfDevice = Double($1) },
    "newChannelsOfAddress": { $0.newChannelsOfAddress = Double($1) },
    "notifySeconds": { $0.notifyTimeToLive = Int64($1) * 1000 },
    "abandonedSeconds": { $0.abandonedTime = Int64($1) * 1000 },
    "endedSeconds": { $0.endedTime = Int64($1) * 1000 },
    "pingSeconds": { $0.pingInterval = Int64($1) * 1000 },
    "pingBatchBytes": { $0.pingBatch = $1 },
    "callbackSeconds": { $0.callbackTime = Int64($1) * 1000 },
    "callbackBytes": { $0.callbackBytes = $1 },
    "callbackLifeSeconds": { $0.callbackLife = Int64($1) * 1000 },
    "callbacksAtOnce": { $0.callbacksAtOnce = $1 },
    "waitingCallbacksOfHost": { $0.waitingCallsOfHost = $1 },
    "connections": { $0.connections = $1 },
    "connectionsOfAddress": { $0.connectionsOfAddress = $1 },
    "idleSeconds": { $0.idleSeconds = Int64($1) },
    "bodySeconds": { $0.bodySeconds = Int64($1) },
    "loopProbeMilliseconds": { $0.loopProbeMilliseconds = Int64($1) },
    "bodyBytesAtOnce": { $0.bodyBytesAtOnce = $1 },
  ]

  static var names: [String] { (integers.keys + ["callbackNetworks", "regionalHost"]).sorted() }

  private let reader: ConfigReader

  init(file: String?) async throws {
    var providers: [any ConfigProvider] = [EnvironmentVariablesProvider()]
    if let file {
      try Self.check(file)
      providers.append(
        KeyMappingProvider(upstream: try await FileProvider<JSONSnapshot>(filePath: FilePath(file))) {
          AbsoluteConfigKey(Array($0.components.dropFirst()), context: $0.context)
        })
    }
    reader = ConfigReader(providers: providers).scoped(to: "push")
  }

  /// A setting that is misspelt is an error, and not a setting that does nothing.
  private static func check(_ file: String) throws {
    let object: Any
    do {
      object = try JSONSerialization.jsonObject(with: Data(contentsOf: URL(fileURLWithPath: file)))
    } catch {
      throw ValidationError("\(file) cannot be read as JSON: \(error.localizedDescription)")
    }
    guard let settings = object as? [String: Any] else { throw ValidationError("\(file) is no JSON object") }
    for name in settings.keys.sorted() where !names.contains(name) {
      throw ValidationError(
        "\(file): there is no setting \(name); there are \(names.joined(separator: ", "))")
    }
  }

  func apply(to configuration: inout RelayConfiguration) throws {
    for (name, set) in Self.integers {
      guard let value = try reader.fetchOptional(name) else { continue }
      try RelayConfiguration.check(value, ofSetting: name)
      set(&configuration, value)
    }
    if let host = reader.string(forKey: "regionalHost") { configuration.regionalHost = host }
    for text in reader.stringArray(forKey: "callbackNetworks") ?? [] {
      guard let network = Network(text) else {
        throw ValidationError("\(text) is no network; an example is 10.0.0.0/8")
      }
      configuration.callbackNetworks.append(network)
    }
  }
}

extension ConfigReader {
  /// Throws when there is a value that is no number.
  fileprivate func fetchOptional(_ name: String) throws -> Int? {
    if let value = int(forKey: ConfigKey(stringLiteral: name)) { return value }
    if let text = string(forKey: ConfigKey(stringLiteral: name)) {
      throw ValidationError("\(name) is \(text), and must be a number")
    }
    return nil
  }
}
