import AppKinetics
import ArgumentParser
import Foundation

struct ServiceCallCommand: ParsableCommand, ReportingCommand {
  static let configuration = CommandConfiguration(
    commandName: "call", abstract: "Sends a request to an app, and prints its reply.",
    discussion: """
      DIR is the container of the app that asks: it holds the key that proves who it is. Params and replies are JSON; bytes are {"$bytes": "Base64"}. The \
      program waits for the reply, unless --no-wait is given: then it ends when the other app has a copy of everything.
      """)

  @OptionGroup var app: AppOptions

  @Argument(help: "The method.")
  var method: String

  @Option(
    help: ArgumentHelp("Who is asked; without it the only app that offers the service.", valueName: "app-id"))
  var to: String?

  @Option(
    help: ArgumentHelp("The service's id, or the short name of a well-known one.", valueName: "service-id"))
  var service: ServiceName

  @Option(help: "The service's version; without it that of the well-known service, or 1.0.0.0.")
  var version: String?

  @Option(help: ArgumentHelp("The params.", valueName: "json"))
  var params: String?

  @Option(
    help: ArgumentHelp(
      "A file or folder of the container to send along; may be given several times.", valueName: "path"))
  var attach: [String] = []

  @Option(help: "Who should be in front afterwards: me, peer or none.")
  var foreground = ForegroundArgument.none

  @Flag(help: "Does not wait for the reply.")
  var noWait = false

  @Flag(help: "Prints one JSON object.")
  var json = false

  var reportsJSON: Bool { json }

  enum ForegroundArgument: String, ExpressibleByArgument, CaseIterable {
    case me, peer, none

    var preference: ForegroundPreference {
      switch self {
      case .me: .me
      case .peer: .peer
      case .none: .none
      }
    }
  }

  func validate() throws {
    do {
      _ = (try request(), try target())
    } catch let error as ServicesError {
      throw ValidationError(
        [error.path, error.detail].compactMap { $0.map(PrintableText.of) }.joined(separator: ": ") + ".")
    }
  }

  private func target() throws -> ApplicationID? { try to.map { try ApplicationID($0) } }

  func run() throws {
    let request = try request()
    let target = try target()
    let waits = !noWait
    // What the app offers at other times stays registered.
    let answer = try app.withServices(registers: false) { services, _ in
      try AsyncWork.run {
        try await services.start()
        let target = try await Self.target(target, request, services)
        let sent = try await services.send(request, to: target)
        // One without files is refused when its receiver is not unlocked in time.
        let whatWaits =
          attach.isEmpty ? "the request waits, for 30 s at most" : "the message waits in the outbox"
        let notice = Task {
          try await WaitNotice.say(of: sent, services, whatWaits, write: StandardError.write)
        }
        defer { notice.cancel() }
        return try await withTaskCancellationHandler {
          guard waits else {
            try await sent.delivered()
            // The reply may have come meanwhile, and is not what was asked for.
            return try Answer(sent, nil, status: .delivered)
          }
          do {
            let reply = try await sent.reply()
            return try Answer(sent, reply, status: sent.status)
          } catch let error as ServicesError {
            // A reply that breaks its definition may have brought some.
            for path in sent.replyAttachments {
              StandardError.write("dynamics: a file is in the inbox: \(PrintableText.of(path))\n")
            }
            throw error
          }
        } onCancel: {
          Task { await sent.cancel() }
        }
      }
    }
    try StandardOutput.write(json ? JSONText.of(answer) : answer.text)
  }

  private func request() throws -> ServiceRequest {
    let definition = service.known?.definition
    let version =
      try self.version.map { try ServiceVersion($0) } ?? definition?.version ?? ServiceVersion("1.0.0.0")
    return ServiceRequest(
      service: service.id, version: version, method: method,
      params: try params.map { try ServiceValue(jsonText: $0) },
      attachments: attach, foreground: foreground.preference, definition: definition)
  }

  private static func target(
    _ target: ApplicationID?, _ request: ServiceRequest, _ services: AppServices
  ) async throws -> ApplicationID {
    if let target { return target }
    let providers = try await services.providers(of: request.service, version: request.version)
    guard let only = providers.first, providers.count == 1 else {
      let names = providers.map(\.application.text).joined(separator: ", ")
      throw ServicesError(
        .applicationNotFound,
        detail: providers.isEmpty
          ? "nobody offers \(request.service) \(request.version)" : "say with --to which of: \(names)")
    }
    return only.application
  }

  private struct Answer: Encodable, Sendable {
    var request: String
    var app: String
    var status: String
    /// JSON.
    var params: String?
    var attachments: [String]

    init(_ sent: SentRequest, _ reply: ServiceReply?, status: SentRequest.Status) throws {
      request = sent.id.description
      app = sent.application.text
      self.status = "\(status)"
      params = try reply?.params?.jsonText()
      attachments = reply?.attachments ?? []
    }

    var text: String {
      var lines = params.map { [PrintableText.ofJSON($0)] } ?? []
      lines += attachments.map(PrintableText.of)
      if lines.isEmpty { lines = [status] }
      return lines.joined(separator: "\n") + "\n"
    }
  }
}
