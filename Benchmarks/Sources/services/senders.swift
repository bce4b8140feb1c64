import AppKinetics
@preconcurrency import Dispatch
import Foundation
import SecureFiles

/// Files from several processes to one at the same time: the memory of each side beyond its rest.
struct SendersBenchmark {
  let directory: String
  let byteCount: Int
  let broker: Process

  private static let counts = [1, 4, 16]
  /// Deliveries of each sender, one after the other.
  private static let repetitions = 2

  /// A process that sends one file whenever it is told to.
  private struct Sender {
    let process: Process
    private let input: Pipe
    private let output: Pipe

    init(_ directory: String, _ id: String, to target: String) throws {
      process = Process()
      (input, output) = (Pipe(), Pipe())
      process.executableURL = URL(fileURLWithPath: "/proc/self/exe").resolvingSymlinksInPath()
      process.arguments = ["send-files", directory, id, target]
      process.standardInput = input
      process.standardOutput = output
      try process.run()
      try awaitLine()
    }

    func send() throws { try input.fileHandleForWriting.write(contentsOf: Data("go\n".utf8)) }

    /// Blocks until the process is ready, or has sent.
    func awaitLine() throws {
      guard !output.fileHandleForReading.availableData.isEmpty else {
        throw ServicesError(.general, detail: "a sender has ended")
      }
    }
  }

  /// Runs the process of one sender: it sends the file `original` for each line that it reads.
  static func send(_ directory: String, _ id: String, to target: String) async throws {
    let (services, container) = try DeliveryBenchmark.application(id, directory, durability: .grouped)
    try container.store.importItem(at: directory + "/original", to: "/large")
    try await container.synchronize()
    try await services.start()
    let target = try ApplicationID(target)
    // There is a channel, and what calls need has been used.
    for _ in 0..<100 { try await services.call(echoRequest, to: target) }
    ready()
    while readLine() != nil {
      let request = ServiceRequest(
        service: definition.serviceID, version: definition.version, method: "echo", attachments: ["/large"])
      try await services.send(request, to: target).delivered()
      ready()
    }
  }

  func run() throws {
    try Data(repeating: 7, count: byteCount)
      .write(to: URL(fileURLWithPath: directory + "/original"))
    print("senders\tseconds\tMB/s\trest of the receiver, MiB\treceiver\tsender at most\tall senders\tbroker")
    for count in Self.counts { try measure(count) }
  }

  /// The receiver and the senders are new processes. Memory that a sender shares is mapped in the sender alone,
  /// since a receiver copies from it: so the kernel's count has it once.
  private func measure(_ count: Int) throws {
    // The broker knows an id by its key, so that each new container needs another one.
    let target = "com.example.provider.\(count)"
    let receiver = try process("provide-files", directory, target, "none")
    defer {
      receiver.terminate()
      receiver.waitUntilExit()
      try? FileManager.default.removeItem(atPath: directory + "/" + target)
    }
    var senders: [Sender] = []
    defer {
      for (number, sender) in senders.enumerated() {
        sender.process.terminate()
        sender.process.waitUntilExit()
        try? FileManager.default.removeItem(atPath: directory + "/" + Self.name(count, number))
      }
    }
    for number in 0..<count { senders.append(try Sender(directory, Self.name(count, number), to: target)) }
    let processes =
      [receiver.processIdentifier, broker.processIdentifier] + senders.map(\.process.processIdentifier)
    for _ in 0..<Self.repetitions {
      let rest = try processes.map { try resetPeakKiB($0) }
      let begin = DispatchTime.now().uptimeNanoseconds
      for sender in senders { try sender.send() }
      for sender in senders { try sender.awaitLine() }
      let seconds = Double(DispatchTime.now().uptimeNanoseconds - begin) / 1e9
      let growth = try zip(processes, rest).map { Double(try peakKiB($0) - $1) / 1024 }
      print(
        [
          "\(count)", text(seconds, 2), text(Double(byteCount) * Double(count) / 1e6 / seconds, 0),
          text(Double(rest[0]) / 1024, 1), text(growth[0], 1), text(growth[2...].max() ?? 0, 1),
          text(growth[2...].reduce(0, +), 1), text(growth[1], 1),
        ].joined(separator: "\t"))
    }
  }

  private static func name(_ count: Int, _ number: Int) -> String { "com.example.sender.\(count).\(number)" }
}
