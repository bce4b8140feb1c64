import LocalTransport
import ServiceBroker
import ServiceWire
import SodiumPrimitives
import Testing

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

/// `dynamics broker` for one test, killed with it.
final class BrokerProcess {
  let folder: TemporaryFolder
  var process: DynamicsProcess?

  private let options: String

  /// With so many open files at most, where a number is given.
  init(_ options: String = "", descriptorCountMax: Int? = nil) throws {
    folder = try TemporaryFolder()
    self.options = options
    try start(descriptorCountMax)
  }

  deinit {
    process?.signal(SIGKILL)
    _ = try? process?.finish()
  }

  var socket: String { folder.path("run/broker") }
  var environment: [String: String] {
    ["OPENDYNAMICS_BROKER": socket, "OPENDYNAMICS_BROKER_STATE": folder.path("state")]
  }

  func start(_ descriptorCountMax: Int? = nil) throws {
    // A limit counts what other tests had open when this process was started, too: that is closed first.
    let limit =
      descriptorCountMax.map {
        "for f in /dev/fd/*; do n=${f##*/}; if [ $n -gt 2 ]; then eval \"exec $n>&-\"; fi; done; ulimit -n \($0); "
      } ?? ""
    let words = ["-c", limit + "exec \(DynamicsProcess.executable) broker \(options)"]
    let process = try DynamicsProcess(
      words.map { Array($0.utf8) }, in: folder, environment: environment, executable: "/bin/bash")
    self.process = process
    try process.wait("listening") {
      try String(decoding: readBytes(process.outputPath), as: UTF8.self).hasPrefix("listening at ")
    }
  }

  func run(_ arguments: String..., expecting status: Int32 = 0) throws -> DynamicsProcess.Outcome {
    try run(arguments, expecting: status)
  }

  func run(_ arguments: [String], expecting status: Int32 = 0) throws -> DynamicsProcess.Outcome {
    let outcome = try DynamicsProcess(
      arguments.map { Array($0.utf8) }, in: folder, environment: environment
    ).finish()
    #expect(outcome.status == status, "\(arguments): \(outcome.errors)")
    return outcome
  }

  func app(_ appID: String, key: KeyPair? = nil) async throws -> BrokerClient {
    let (client, _) = try await BrokerClient.begin(
      path: socket, key: try key ?? KeyPair(), broker: nil,
      .with {
        $0.enrol.version = 1
        $0.enrol.appID = appID
        $0.enrol.activationUser = "u"
        $0.enrol.state = .running
      })
    _ = try await client.ask(
      .register(
        .with {
          $0.name = "App"
          $0.services = [
            .with {
              $0.id = "com.example.greetings"
              $0.version = "1.0"
            }
          ]
        }))
    return client
  }
}
