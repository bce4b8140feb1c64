import ArgumentParser
import AsyncHTTPClient
import Foundation
import NIOCore
import NIOHTTP1
import NIOSSL

/// What every command of a back end needs.
struct BackEndOptions: ParsableArguments {
  @Option(help: ArgumentHelp("The relay's address for back ends.", valueName: "url"))
  var relay = "http://localhost:17080"

  @Option(help: ArgumentHelp("Authorities that may certify the relay (PEM).", valueName: "file"))
  var authorities: String?

  func execute(_ request: HTTPClientRequest) async throws -> (response: HTTPClientResponse, text: String) {
    var tls = TLSConfiguration.makeClientConfiguration()
    if let authorities { tls.trustRoots = .file(authorities) }
    let client = HTTPClient(
      eventLoopGroupProvider: .singleton,
      configuration: HTTPClient.Configuration(tlsConfiguration: tls, redirectConfiguration: .disallow))
    do {
      let response = try await client.execute(request, timeout: .seconds(30))
      let body = try await response.body.collect(upTo: 1 << 20)
      try await client.shutdown()
      return (response, String(buffer: body).trimmingCharacters(in: .whitespacesAndNewlines))
    } catch {
      try? await client.shutdown()
      throw Failure(description: "no answer from \(relay): \(error)")
    }
  }
}

struct SendCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "send", abstract: "Sends a message to a channel, as an app's server does.",
    discussion: "Without a text, the message is read from the standard input.")

  @Argument(help: "The token of the channel.")
  var token: String

  @Argument(help: "The message.")
  var text: String?

  @Flag(help: "Uses the documented interface (notify), which refuses when the device is not connected.")
  var notify = false

  @Option(help: ArgumentHelp("How long the message waits for the device, in seconds.", valueName: "seconds"))
  var timeToLive = 604_800

  @Option(help: "Replaces a waiting message of the same topic.")
  var topic: String?

  @Option(help: "very-low, low, normal or high.")
  var urgency: String?

  @OptionGroup var backEnd: BackEndOptions

  func run() async throws {
    let body = text.map { Data($0.utf8) } ?? FileHandle.standardInput.readDataToEndOfFile()
    var request: HTTPClientRequest
    if notify {
      guard topic == nil, urgency == nil else { throw ValidationError("notify has no topic and no urgency") }
      request = HTTPClientRequest(url: backEnd.relay + "/GNP1.0?method=notify")
      request.headers.add(name: "X-Good-GNP-Token", value: token)
      request.headers.add(name: "Content-Type", value: "text/plain; charset=utf-8")
    } else {
      request = HTTPClientRequest(url: backEnd.relay + "/push/" + (token.split(separator: " ").last ?? ""))
      request.headers.add(name: "TTL", value: "\(timeToLive)")
      if let topic { request.headers.add(name: "Topic", value: topic) }
      if let urgency { request.headers.add(name: "Urgency", value: urgency) }
    }
    request.method = .POST
    request.body = .bytes(ByteBuffer(bytes: body))
    let (response, text) = try await backEnd.execute(request)
    if let code = response.headers.first(name: "X-Good-GNP-Code") {
      guard code.hasPrefix("100") else { throw Failure(description: "not accepted: \(code)") }
      print("accepted: \(code)")
    } else {
      guard response.status == .created else {
        throw Failure(description: "not accepted: \(response.status.code) \(text)")
      }
      print("accepted: \(response.status.code)")
    }
  }
}

struct RevokeCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "revoke", abstract: "Ends a channel, as the relay's operator.",
    discussion: "The app gets error 504, and the app's server hears that the token is dead.")

  @Argument(help: "The token, or its first three components.")
  var token: String

  @Option(
    name: .customLong("operator"),
    help: ArgumentHelp("The relay's address for its operator.", valueName: "url"))
  var address = "http://127.0.0.1:17081"

  func run() async throws {
    var options = BackEndOptions()
    options.relay = address
    options.authorities = nil
    var request = HTTPClientRequest(url: address + "/revoke")
    request.method = .POST
    request.body = .bytes(ByteBuffer(string: token))
    let (response, text) = try await options.execute(request)
    guard response.status == .ok else { throw Failure(description: text) }
    print(text)
  }
}
