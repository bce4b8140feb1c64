import ArgumentParser
import ServiceWire

/// A rule as it is written on the command line: what is left out means any.
struct RuleOptions: ParsableArguments {
  @Argument(
    help:
      "deny: these apps are not introduced; allow: they are, although a rule that says less denies it; disable: a service, a version or a method is switched off."
  )
  var effect: RuleEffect

  @Option(help: "The app that asks.")
  var consumer: String?

  @Option(help: "The app that is asked.")
  var provider: String?

  @Flag(help: "The rule is for all apps: `deny --everybody` leaves only what other rules allow.")
  var everybody = false

  @Option(help: "The service's id, or the short name of a well-known one.")
  var service: ServiceName?

  @Option(help: "The service's version.")
  var version: String?

  @Option(help: "The method.")
  var method: String?

  var rule: WireRule {
    .with {
      $0.effect = effect.wire
      if let consumer { $0.consumer = consumer }
      if let provider { $0.provider = provider }
      if let service { $0.serviceID = service.id.text }
      if let version { $0.version = version }
      if let method { $0.method = method }
    }
  }
}

enum RuleEffect: String, CaseIterable, ExpressibleByArgument {
  case allow, deny, disable

  var wire: WireEffect {
    switch self {
    case .allow: .allow
    case .deny: .deny
    case .disable: .disable
    }
  }
}
