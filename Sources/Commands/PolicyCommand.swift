import ArgumentParser
import ServiceBroker
import ServiceWire

struct PolicyCommand: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "policy", abstract: "Rules about who may call whom, and what is switched off.",
    subcommands: [ListRulesCommand.self, AddRuleCommand.self, RemoveRuleCommand.self])
}

struct AddRuleCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(commandName: "add", abstract: "Adds a rule, at once.")

  @OptionGroup var options: RuleOptions
  @OptionGroup var broker: BrokerOptions

  func validate() throws {
    try options.consumer.map { try checkApplicationID($0, "--consumer") }
    try options.provider.map { try checkApplicationID($0, "--provider") }
    switch options.effect {
    case .deny, .allow:
      guard (options.consumer == nil && options.provider == nil) == options.everybody else {
        throw ValidationError("Name one app at least with --consumer and --provider, or say --everybody.")
      }
    case .disable where options.service == nil:
      throw ValidationError("Say with --service what is switched off.")
    default: break
    }
  }

  func run() async throws {
    let rule = options.rule
    try await broker.administer(.with { $0.addRule = rule })
  }
}

struct RemoveRuleCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "remove", abstract: "Removes the rule that was added with the same words.")

  @OptionGroup var options: RuleOptions
  @OptionGroup var broker: BrokerOptions

  func run() async throws {
    let rule = options.rule
    try await broker.administer(.with { $0.removeRule = rule })
  }
}

struct ListRulesCommand: AsyncParsableCommand, ReportingCommand {
  static let configuration = CommandConfiguration(commandName: "list", abstract: "All rules.")

  @OptionGroup var broker: BrokerOptions

  @Flag(help: "Prints one JSON array.")
  var json = false

  var reportsJSON: Bool { json }

  func run() async throws {
    let answer = try await broker.administer(.with { $0.listRules = .init() })
    let rules = answer.rules.rules.map(ListedRule.init)
    try StandardOutput.write(json ? JSONText.of(rules) : rules.map(\.text).joined())
  }
}

private struct ListedRule: Encodable {
  let effect: String
  let consumer, provider, service, version, method: String?

  init(_ rule: WireRule) {
    effect =
      switch rule.effect {
      case .allow: "allow"
      case .deny: "deny"
      case .disable: "disable"
      case .UNRECOGNIZED(let number): "\(number)"
      }
    consumer = rule.hasConsumer ? rule.consumer : nil
    provider = rule.hasProvider ? rule.provider : nil
    service = rule.hasServiceID ? rule.serviceID : nil
    version = rule.hasVersion ? rule.version : nil
    method = rule.hasMethod ? rule.method : nil
  }

  /// The words that `add` and `remove` take.
  var text: String {
    let options = [
      ("consumer", consumer), ("provider", provider), ("service", service), ("version", version),
      ("method", method),
    ]
    let words = options.reduce(effect) { text, option in
      option.1.map { "\(text) --\(option.0) \(PrintableText.of($0))" } ?? text
    }
    let isForEverybody = effect != "disable" && consumer == nil && provider == nil
    return words + (isForEverybody ? " --everybody\n" : "\n")
  }
}
