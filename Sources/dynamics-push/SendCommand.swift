import ArgumentParser
import AsyncHTTPClient
import Foundation
import NIOCore
import NIOHTTP1
import NIOSSL
import PushClient
import PushWire

/// A request of a back end or of the operator.
struct BackEndRequest {
  /// The relay's address, as the user has given it.
  let relay: NamedValue
  /// Of the relay, without a slash at its end.
  let address: String
  let authorities: String?

  /// Throws for anything else than `http://HOST:PORT` and `https://HOST:PORT`.
  init(relay: NamedValue, authorities: String? = nil) throws {
    self.relay = relay
    guard let url = URL(string: relay.value), let scheme = url.scheme?.lowercased(),
      scheme == "http" || scheme == "https", url.host()?.isEmpty == false, url.user() == nil,
      url.query() == nil, ["", "/"].contains(url.path())
    else {
      throw ValidationError(
        "\(relay) is no address of a relay: use http://HOST:PORT or https://HOST:PORT")
    }
    address = relay.value.hasSuffix("/") ? String(relay.value.dropLast()) : relay.value
    if let authorities {
      try checkAuthorities(NamedValue(value: authorities, source: "--authorities"))
    }
    self.authorities = authorities ?? (scheme == "https" ? ownAuthority(for: url) : nil)
  }

  func execute(_ request: HTTPClientRequest) async throws -> (response: HTTPClientResponse, text: String) {
    var tls = TLSConfiguration.makeClientConfiguration()
    if let authorities { tls.trustRoots = .file(authorities) }
    var configuration = HTTPClient.Configuration(
      tlsConfiguration: tls, redirectConfiguration: .disallow)
    // A relay that is not running is an error at once.
    configuration.connectionPool.retryConnectionEstablishment = false
    let client = HTTPClient(eventLoopGroupProvider: .singleton, configuration: configuration)
    do {
      let response = try await client.execute(request, timeout: .seconds(30))
      let body = try await response.body.collect(upTo: 1 << 20)
      try await client.shutdown()
      return (response, String(buffer: body).trimmingCharacters(in: .whitespacesAndNewlines))
    } catch {
      try? await client.shutdown()
      throw Failure("no answer from \(relay.value): \(cause(error))")
    }
  }

  private func cause(_ error: any Error) -> String {
    if let error = error as? HTTPClientError,
      [.connectTimeout, .readTimeout, .deadlineExceeded].contains(error)
    {
      return "nothing came in time; check the address and the network"
    }
    return switch PushConnectionFailure(error) {
    case .refused: "connection refused; is the relay running?"
    case .unresolvedHost: "the name cannot be resolved"
    case .unreachable, .timeout: "the address cannot be reached; check the address and the network"
    case .certificateNotTrusted: "certificate not trusted; give --authorities"
    case .certificateForOtherName: "the certificate is for another name; use that name in the address"
    case .noTLS: "this port does not speak TLS; use http://"
    case .tlsFailed: "TLS failed; the relay needs TLS 1.3"
    case _ where address.lowercased().hasPrefix("http:"):
      "the connection was closed; if this port speaks TLS, use https://"
    case _: "the connection was closed; is this the relay's port for this command?"
    }
  }
}

/// Throws for what is no token, and says so when the shell has divided one into words.
func checkToken(_ token: String, rest: [String]) throws {
  if !rest.isEmpty || PushToken(token) == nil {
    let isDivided = !token.contains(" ") && token.utf8.count == 8 && UInt64(token, radix: 16) != nil
    guard rest.isEmpty || isDivided else {
      throw ValidationError(
        "too many arguments: put the token in quotes, and the message in quotes of its own")
    }
    throw ValidationError(
      isDivided
        ? "a token has spaces: put it in quotes"
        : "'\(token)' is no token: a token has four parts with spaces between them; put it in quotes")
  }
}

struct SendCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "send",
    abstract: "Sends a message to a channel, as an app's server does.",
    discussion: "Without a text, the message is read from the standard input.")

  @Argument(help: "The token of the channel, in quotes.")
  var token: String

  @Argument(help: "The message.")
  var text: String?

  /// What the shell makes of a token without quotes.
  @Argument(help: .hidden)
  var rest: [String] = []

  @Flag(help: "Uses the documented interface (notify), which refuses when the device is not connected.")
  var notify = false

  @Option(
    help: ArgumentHelp(
      "How long the message waits for the device, in seconds. (default: 604800)", valueName: "seconds"))
  var timeToLive: Int?

  @Option(help: "Replaces a waiting message of the same topic.")
  var topic: String?

  @Option(help: "very-low, low, normal or high.")
  var urgency: String?

  @Option(help: ArgumentHelp("The relay's address for back ends.", valueName: "url"))
  var relay = "http://localhost:17080"

  @Option(
    help: ArgumentHelp(
      "Authorities that may certify the relay (PEM); by default the certificate in push-relay, for a relay on this machine.",
      valueName: "file"))
  var authorities: String?

  func validate() throws {
    try checkToken(token, rest: rest)
    if notify {
      for (option, isGiven) in [
        ("--topic", topic != nil), ("--urgency", urgency != nil), ("--time-to-live", timeToLive != nil),
      ] where isGiven {
        throw ValidationError("--notify takes no \(option): leave one of them out")
      }
    }
    if let timeToLive, timeToLive < 0 { throw ValidationError("--time-to-live is below 0") }
    if let urgency, !["very-low", "low", "normal", "high"].contains(urgency) {
      throw ValidationError("--urgency \(urgency): write very-low, low, normal or high")
    }
    if let topic, !PushMessage.isTopic(topic) {
      throw ValidationError("--topic \(topic): write 1 to 32 letters, digits, '-' and '_'")
    }
  }

  func run() async throws {
    let backEnd = try BackEndRequest(
      relay: NamedValue(value: relay, source: "--relay"), authorities: authorities)
    let body = text.map { Data($0.utf8) } ?? FileHandle.standardInput.readDataToEndOfFile()
    guard body.count <= FrameLimits.body else {
      throw Failure("the message has \(body.count) bytes; at most \(FrameLimits.body) are allowed")
    }
    var request: HTTPClientRequest
    if notify {
      request = HTTPClientRequest(url: backEnd.address + "/GNP1.0?method=notify")
      request.headers.add(name: "X-Good-GNP-Token", value: token)
      request.headers.add(name: "Content-Type", value: "text/plain; charset=utf-8")
    } else {
      request = HTTPClientRequest(
        url: backEnd.address + "/push/" + (token.split(separator: " ").last ?? ""))
      request.headers.add(name: "TTL", value: "\(timeToLive ?? 604_800)")
      if let topic { request.headers.add(name: "Topic", value: topic) }
      if let urgency { request.headers.add(name: "Urgency", value: urgency) }
    }
    request.method = .POST
    request.body = .bytes(ByteBuffer(bytes: body))
    let (response, text) = try await backEnd.execute(request)
    if let code = response.headers.first(name: "X-Good-GNP-Code") {
      guard code.hasPrefix("100") else { throw Failure("not accepted: \(code)") }
      print("accepted: \(code)")
    } else {
      guard response.status == .created else {
        throw Failure("not accepted: \(response.status.code) \(text)")
      }
      print("accepted: \(response.status.code)")
    }
  }
}

struct RevokeCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "revoke",
    abstract: "Ends a channel, as the relay's operator.",
    discussion: "The app gets error 504, and the app's server is told that the token is dead.")

  @Argument(help: "The token, or its first three components, in quotes.")
  var token: String

  /// What the shell makes of a token without quotes.
  @Argument(help: .hidden)
  var rest: [String] = []

  @Option(
    name: .customLong("operator"),
    help: ArgumentHelp("The relay's address for its operator.", valueName: "url"))
  var address = "http://127.0.0.1:17081"

  func validate() throws {
    try checkToken(token, rest: rest)
  }

  func run() async throws {
    let relay = try BackEndRequest(relay: NamedValue(value: address, source: "--operator"))
    var request = HTTPClientRequest(url: relay.address + "/revoke")
    request.method = .POST
    request.body = .bytes(ByteBuffer(string: token))
    let (response, text) = try await relay.execute(request)
    guard response.status == .ok else {
      throw Failure(
        text.isEmpty
          ? "\(relay.relay) answers HTTP \(response.status.code): is it the operator's port?"
          : text)
    }
    print(text)
  }
}
