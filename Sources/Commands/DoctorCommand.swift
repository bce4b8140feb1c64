import ArgumentParser
import Foundation
import LocalTransport
import ServiceBroker
import ServiceWire
import SodiumPrimitives
import UnixSockets

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

struct DoctorCommand: AsyncParsableCommand, ReportingCommand {
  static let configuration = CommandConfiguration(
    commandName: "doctor",
    abstract: "Looks whether everything is in place, and says what to do where it is not.")

  @OptionGroup var broker: BrokerOptions

  @Flag(help: "Prints one JSON array.")
  var json = false

  var reportsJSON: Bool { json }

  /// Fewer open files than this, and a broker with all its connections runs out of them.
  private static let descriptorCountMin: UInt64 = 4096

  func run() async throws {
    Interruption.shared.endAtOnce()
    let checks =
      [directory("socket directory", SocketDirectory.directory(of: broker.socketPath))]
      + [directory("state directory", broker.stateDirectory)] + administration() + [descriptors()]
      + libraries()
      + (await answers())
    try StandardOutput.write(json ? JSONText.of(checks) : checks.map(\.text).joined())
    if checks.contains(where: { !$0.isRight }) { throw ExitCode(ExitStatus.failure.code) }
  }

  private func directory(_ what: String, _ path: String) -> Check {
    do throws(SocketError) {
      try SocketDirectory.check(path, .closedToOthers)
      return Check(what, path)
    } catch {
      if case .callFailed(_, _, ENOENT) = error {
        return Check(
          what, path + " does not exist", remedy: "start the broker, which makes it: dynamics broker")
      }
      return Check(what, error.what, remedy: error.remedy)
    }
  }

  /// Nothing to be said of a broker that never ran.
  private func administration() -> [Check] {
    let path = broker.administratorKeyPath
    do {
      guard try broker.administratorKey() != nil else { return [] }
      return [Check("administrator", path)]
    } catch {
      return [
        Check(
          "administrator", "\(path) cannot be read, or is no key",
          remedy: "stop the broker, remove the file, and start the broker, which makes another")
      ]
    }
  }

  private func descriptors() -> Check {
    do throws(SocketError) {
      let limit = try DescriptorLimit.current()
      let text = "\(limit.soft), and \(limit.hard) at most"
      return Check(
        "open files", text,
        remedy: limit.hard < Self.descriptorCountMin
          ? "raise the limit (ulimit -Hn) for a broker with many apps" : nil)
    } catch {
      return Check("open files", error.what, remedy: error.remedy)
    }
  }

  private func libraries() -> [Check] {
    let libcrypto =
      switch (CipherBackend.libcryptoVersion, CipherBackend.preferred) {
      case (nil, _): "not installed; libsodium does its work, more slowly"
      case (let version?, .libcrypto): version
      case (let version?, .libsodium): version + ", which disagrees with libsodium and is not used"
      }
    return [Check("libsodium", CipherBackend.libsodiumVersion), Check("libcrypto", libcrypto)]
  }

  private func answers() async -> [Check] {
    do {
      let client = try await broker.attend()
      defer { client.close() }
      guard let key = client.brokerKey else { throw CommandError(.outputClosed) }
      return [
        Check("broker", broker.socketPath), Check("broker key", KeyFingerprint.text(of: key)),
      ]
    } catch {
      let report = ErrorReport(error)
      return [
        Check(
          "broker", report?.message ?? "\(error)",
          remedy: report?.remedy ?? "start it again, and look at what it logs")
      ]
    }
  }
}

private struct Check: Encodable {
  let check, found: String
  let isRight: Bool
  let remedy: String?

  /// Right when there is nothing to do.
  init(_ check: String, _ found: String, remedy: String? = nil) {
    self.check = check
    self.found = found
    self.remedy = remedy
    isRight = remedy == nil
  }

  var text: String {
    let width = 18
    let line =
      check + String(repeating: " ", count: width - check.utf8.count) + PrintableText.of(found) + "\n"
    return (isRight ? "  " : "! ") + line + (remedy.map { "  " + $0 + "\n" } ?? "")
  }
}
