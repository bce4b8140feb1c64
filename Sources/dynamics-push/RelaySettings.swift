import ArgumentParser
import Configuration
import Foundation
import PushRelay
import PushWire
import SystemPackage

/// The settings of a relay: from a JSON file, and from environment variables, which override the file.
/// `waitingEvents` in the file is `PUSH_WAITING_EVENTS` in the environment. Options of the command override
/// both.
struct RelaySettings {
  /// Every limit, and what it does to the configuration.
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
    "bodyBytesOfAddress": { $0.bodyBytesOfAddress = $1 },
    "drainSeconds": { $0.drainTime = Int64($1) * 1000 },
  ]

  private static let texts = [
    "directory", "name", "devicesAddress", "plainDevicesAddress", "backEndsAddress", "plainBackEndsAddress",
    "operatorAddress", "certificate", "key", "admissionKeys", "callbackAuthorities", "logLevel",
    "regionalHost",
  ]
  private static let flags = ["admitAll", "allowPlain", "logJson"]
  private static let networks = "callbackNetworks"

  static var names: [String] { (integers.keys + texts + flags + [networks]).sorted() }

  /// The variable of the environment that has a setting.
  static func variable(_ name: String) -> String {
    "PUSH_" + name.map { $0.isUppercase ? "_\($0)" : $0.uppercased() }.joined()
  }

  private static let fileVariable = "PUSH_SETTINGS"

  private let reader: ConfigReader
  private let environment: [String: String]
  private let file: NamedValue?

  /// `file` is that of the option `--settings`.
  init(file path: String?, environment: [String: String] = ProcessInfo.processInfo.environment) async throws {
    self.environment = environment
    try Self.check(environment)
    if let path {
      file = NamedValue(value: path, source: "--settings")
    } else {
      file = environment[Self.fileVariable].map { NamedValue(value: $0, source: Self.fileVariable) }
    }
    var providers: [any ConfigProvider] = [
      EnvironmentVariablesProvider(environmentVariables: environment)
    ]
    if let file {
      try Self.check(file)
      providers.append(
        KeyMappingProvider(upstream: try await FileProvider<JSONSnapshot>(filePath: FilePath(file.value))) {
          AbsoluteConfigKey(Array($0.components.dropFirst()), context: $0.context)
        })
    }
    reader = ConfigReader(providers: providers).scoped(to: "push")
  }

  // MARK: Names

  /// A setting that is misspelt is an error, and not a setting that does nothing.
  private static func check(_ environment: [String: String]) throws {
    let known = names.map(variable) + [fileVariable]
    for name in environment.keys.sorted() where name.hasPrefix("PUSH_") && !known.contains(name) {
      throw ValidationError("there is no setting \(name); \(suggestion(name, known))")
    }
  }

  private static func check(_ file: NamedValue) throws {
    let data = try contents(of: file)
    guard let settings = try? JSONDecoder().decode([String: JSONValue].self, from: data) else {
      throw ValidationError("\(file) is no JSON object")
    }
    for (name, value) in settings.sorted(by: { $0.key < $1.key }) {
      guard names.contains(name) else {
        throw ValidationError("\(file): there is no setting \(name); \(suggestion(name, names))")
      }
      let kind: String? =
        if integers[name] != nil {
          value == .integer ? nil : "a whole number"
        } else if flags.contains(name) {
          value == .flag ? nil : "true or false"
        } else if name == networks {
          value == .texts ? nil : "a list of networks, such as [\"10.0.0.0/8\"]"
        } else {
          value == .text ? nil : "a text"
        }
      if let kind { throw ValidationError("\(file): \(name) must be \(kind)") }
    }
  }

  /// The kind of a value in the file.
  private enum JSONValue: Decodable {
    case integer, flag, text, texts, other

    init(from decoder: any Decoder) throws {
      let value = try decoder.singleValueContainer()
      self =
        if (try? value.decode(Bool.self)) != nil {
          .flag
        } else if (try? value.decode(Int.self)) != nil {
          .integer
        } else if (try? value.decode(String.self)) != nil {
          .text
        } else if (try? value.decode([String].self)) != nil {
          .texts
        } else {
          .other
        }
    }
  }

  /// The name that was probably meant, or all names.
  static func suggestion(_ name: String, _ names: [String]) -> String {
    let nearest = names.map { (name: $0, distance: distance($0, name)) }.min { $0.distance < $1.distance }
    guard let nearest, nearest.distance <= max(2, name.count / 4) else {
      return "there are \(names.sorted().joined(separator: ", "))"
    }
    return "did you mean \(nearest.name)?"
  }

  /// How many letters have to be added, removed or replaced.
  private static func distance(_ first: String, _ second: String) -> Int {
    let (first, second) = (Array(first.lowercased()), Array(second.lowercased()))
    var row = Array(0...second.count)
    for (index, letter) in first.enumerated() {
      var diagonal = row[0]
      row[0] = index + 1
      for column in second.indices {
        let replaced = diagonal + (second[column] == letter ? 0 : 1)
        diagonal = row[column + 1]
        row[column + 1] = min(replaced, row[column] + 1, diagonal + 1)
      }
    }
    return row[second.count]
  }

  // MARK: Values

  /// Where a setting is from: its variable, or its name in the file.
  private func source(_ name: String) -> String {
    let variable = Self.variable(name)
    guard environment[variable] == nil, let file else { return variable }
    return "\(name) in \(file.value)"
  }

  /// A text: that of an option, if it was given, else that of the setting.
  func text(_ name: String, option: String, _ value: String?) -> NamedValue? {
    precondition(Self.texts.contains(name), "\(name) is no text")
    if let value { return NamedValue(value: value, source: option) }
    return reader.string(forKey: ConfigKey(stringLiteral: name))
      .map { NamedValue(value: $0, source: source(name)) }
  }

  /// Whether the option or the setting is on.
  func flag(_ name: String, _ isGiven: Bool) throws -> Bool {
    precondition(Self.flags.contains(name), "\(name) is no flag")
    if isGiven { return true }
    let key = ConfigKey(stringLiteral: name)
    if let value = reader.bool(forKey: key) { return value }
    if let text = reader.string(forKey: key) {
      throw ValidationError("\(source(name)) is \(text), and must be true or false")
    }
    return false
  }

  func apply(to configuration: inout RelayConfiguration) throws {
    for (name, set) in Self.integers.sorted(by: { $0.key < $1.key }) {
      guard let value = try integer(name) else { continue }
      let range = RelayConfiguration.range(ofSetting: name)
      guard range.contains(value) else {
        throw ValidationError(
          "\(source(name)) is \(value), and must be from \(range.lowerBound) to \(range.upperBound)")
      }
      set(&configuration, value)
    }
    if let host = reader.string(forKey: "regionalHost") { configuration.regionalHost = host }
    for text in reader.stringArray(forKey: ConfigKey(stringLiteral: Self.networks)) ?? [] {
      guard let network = Network(text) else {
        throw ValidationError("\(source(Self.networks)): \(text) is no network; an example is 10.0.0.0/8")
      }
      configuration.callbackNetworks.append(network)
    }
  }

  private func integer(_ name: String) throws -> Int? {
    let key = ConfigKey(stringLiteral: name)
    if let value = reader.int(forKey: key) { return value }
    if let text = reader.string(forKey: key) {
      throw ValidationError("\(source(name)) is \(text), and must be a number")
    }
    return nil
  }
}
