import AppKinetics
@preconcurrency import Dispatch
import Foundation
import SecureFiles

/// Files from one process to another, beside `cp` and `send` inside one process in turns.
struct DeliveryBenchmark {
  let directory: String
  let byteCount: Int
  let broker: Process

  static let provider = "com.example.provider"

  /// A provider that deletes what comes: its own time is not part of a delivery.
  static func provide(_ directory: String, _ id: String, durability: Container.Durability) async throws {
    let (services, container) = try application(id, directory, durability: durability)
    try services.offer(definition) { request in
      guard let path = request.attachments.first else { return .reply(request.params) }
      try container.removeInboxMessages(
        container.inboxMessages().filter { path.hasPrefix($0.directory + "/") })
      return .noReply
    }
    try await services.start()
    ready()
    try await forever()
  }

  static func application(
    _ id: String, _ directory: String, durability: Container.Durability
  ) throws -> (AppServices, SecureContainer) {
    let container = try Self.container(id, directory, durability)
    var options = AppServices.Options()
    options.broker = configuration(directory).socketPath
    return (
      try AppServices(Application(id: ApplicationID(id), name: id), container: container, options: options),
      container
    )
  }

  static func container(
    _ name: String, _ directory: String, _ durability: Container.Durability
  ) throws -> SecureContainer {
    var options = Container.Options()
    options.durability = durability
    return try SecureContainer.create(
      at: URL(fileURLWithPath: directory).appendingPathComponent(name),
      rawKey: SecretBytes(utf8: String(repeating: "k", count: 32)), options: options)
  }

  // MARK: Measuring

  private func seconds(_ body: () async throws -> Void) async rethrows -> Double {
    let begin = DispatchTime.now().uptimeNanoseconds
    try await body()
    return Double(DispatchTime.now().uptimeNanoseconds - begin) / 1e9
  }

  private func shell(_ command: String) throws {
    let process = Process()
    process.executableURL = URL(fileURLWithPath: "/bin/sh")
    process.arguments = ["-c", command]
    process.currentDirectoryURL = URL(fileURLWithPath: directory)
    try process.run()
    process.waitUntilExit()
    guard process.terminationStatus == 0 else { throw ServicesError(.general, detail: command) }
  }

  private func message(_ paths: [String]) -> ServiceRequest {
    ServiceRequest(
      service: definition.serviceID, version: definition.version, method: "echo", attachments: paths)
  }

  private func deliver(_ path: String, _ services: AppServices, _ target: String) async throws {
    try await services.send(message([path]), to: ApplicationID(target)).delivered()
  }

  func run(repetitions: Int, fileCount: Int) async throws {
    // What is read is in the page cache for both.
    try shell("head -c \(byteCount) /dev/urandom >original")
    let (services, container) = try Self.application("com.example.consumer", directory, durability: .grouped)
    try container.store.importItem(at: directory + "/original", to: "/large")
    try await container.synchronize()
    try await services.start()
    let cached = try process("provide-files", directory, Self.provider + ".cached", "none")
    defer { cached.terminate() }
    let durable = try process("provide-files", directory, Self.provider + ".durable", "full")
    defer { durable.terminate() }
    for target in [".cached", ".durable"] { _ = try await latency(1000, services, Self.provider + target) }
    let processes = [getpid(), cached.processIdentifier, durable.processIdentifier, broker.processIdentifier]
    var growth = [0, 0, 0, 0]
    let inside = [
      try Self.container("inside.cached", directory, .none),
      try Self.container("inside.durable", directory, .full),
    ]
    print("name\tseconds\tMB/s\tagainst cp\tagainst send\tprocessor seconds\tagainst send")
    for _ in 0..<repetitions {
      for (isDurable, target) in [(false, ".cached"), (true, ".durable")] {
        let copy = isDurable ? "cp original copy && sync copy" : "cp original copy"
        try shell("sync .; rm -f copy")
        let copied = try await seconds { try shell(copy) }
        try shell("rm -f copy; sync .")
        let receiver = inside[isDurable ? 1 : 0]
        let sent = try await measured([]) { try await send("/large", from: container, to: receiver) }
        try shell("sync .")
        let rest = try processes.map { try resetPeakKiB($0) }
        let delivered = try await measured([isDurable ? durable : cached]) {
          try await deliver("/large", services, Self.provider + target)
        }
        for (index, process) in processes.enumerated() {
          growth[index] = max(growth[index], try peakKiB(process) - rest[index])
        }
        let name = isDurable ? ", durable" : ", not waiting for the disk"
        line(isDurable ? "cp and fsync" : "cp", (copied, nil), copied, sent)
        line("send" + name, sent, copied, sent)
        line("delivery" + name, delivered, copied, sent)
      }
    }
    for (name, most) in zip(["sender", "receiver", "receiver, durable", "broker"], growth) {
      print("memory of a delivery beyond rest, \(name)\t\(text(Double(most) / 1024, 1)) MiB")
    }
    try await measureMany(services)
    try await measureLatency(services)
    try await measureSmallFiles(fileCount, services, container, inside[1])
    await services.stop()
  }

  /// The memory that one app takes for deliveries to several others at once.
  private func measureMany(_ services: AppServices) async throws {
    let targets = (0..<8).map { Self.provider + ".many.\($0)" }
    var receivers: [Process] = []
    defer { for receiver in receivers { receiver.terminate() } }
    for target in targets { receivers.append(try process("provide-files", directory, target, "none")) }
    for target in targets { _ = try await latency(10, services, target) }
    let processes = [getpid()] + receivers.map(\.processIdentifier)
    let rest = try processes.map { try resetPeakKiB($0) }
    let time = try await seconds {
      try await withThrowingTaskGroup(of: Void.self) { group in
        for target in targets { group.addTask { try await deliver("/large", services, target) } }
        try await group.waitForAll()
      }
    }
    var growth: [Double] = []
    for (process, rest) in zip(processes, rest) { growth.append(Double(try peakKiB(process) - rest) / 1024) }
    print(
      "one file to \(targets.count) apps at once\t\(text(time, 3)) s\tmemory beyond rest: sender "
        + "\(text(growth[0], 1)) MiB, receivers \(text(growth[1...].max()!, 1)) MiB at most")
  }

  /// Wall time, and processor time of this process and some others, which the kernel counts in hundredths.
  private typealias Times = (wall: Double, processor: Double?)

  private func measured(_ others: [Process], _ body: () async throws -> Void) async throws -> Times {
    func processorSeconds() throws -> Double {
      try ([getpid()] + others.map(\.processIdentifier)).reduce(0.0) { sum, process in
        let words = try String(contentsOfFile: "/proc/\(process)/stat", encoding: .utf8).split(
          separator: ") "
        ).last!
        .split(separator: " ")
        return sum + (Double(words[11])! + Double(words[12])!) / 100
      }
    }
    let before = try processorSeconds()
    let wall = try await seconds(body)
    return (wall, try processorSeconds() - before)
  }

  private func line(_ name: String, _ times: Times, _ copied: Double, _ sent: Times) {
    print(
      [
        name, text(times.wall, 3), text(Double(byteCount) / 1e6 / times.wall, 0),
        text(copied / times.wall, 2),
        text(sent.wall / times.wall, 2), times.processor.map { text($0, 2) } ?? "",
        times.processor.map { text($0 / sent.processor!, 2) } ?? "",
      ].joined(separator: "\t"))
  }

  /// Inside this process, to a container whose inbox is emptied afterwards.
  private func send(_ path: String, from container: SecureContainer, to receiver: SecureContainer)
    async throws
  {
    _ = try await container.send([path], to: receiver, sender: "com.example.consumer")
    try receiver.removeInboxMessages(receiver.inboxMessages())
  }

  /// Microseconds of each of so many calls, sorted; or of those that fit before something has ended.
  private func latency(
    _ count: Int, _ services: AppServices, _ target: String, until hasEnded: () -> Bool = { false }
  ) async throws -> [Double] {
    let target = try ApplicationID(target)
    let request = ServiceRequest(
      service: definition.serviceID, version: definition.version, method: "echo",
      params: .bytes([UInt8](repeating: 7, count: 64)))
    var times: [Double] = []
    while times.count < count, !hasEnded() {
      times.append(try await seconds { try await services.call(request, to: target) } * 1e6)
    }
    return times.sorted()
  }

  private func measureLatency(_ services: AppServices) async throws {
    let target = Self.provider + ".durable"
    let idle = try await latency(5000, services, target)
    let sent = try await services.send(message(["/large"]), to: ApplicationID(target))
    let busy = try await latency(.max, services, target) {
      sent.status == .delivered || sent.status == .endedWithoutReply
    }
    try await sent.delivered()
    for (name, times) in [("alone", idle), ("beside a delivery", busy)] where !times.isEmpty {
      print(
        "call of 64 bytes \(name), \(times.count) times\tmedian \(text(times[times.count / 2], 0)) µs"
          + "\tp99 \(text(times[times.count * 99 / 100], 0)) µs")
    }
  }

  private func measureSmallFiles(
    _ count: Int, _ services: AppServices, _ container: SecureContainer, _ receiver: SecureContainer
  ) async throws {
    try shell("mkdir small && cd small && head -c \(count * 4096) /dev/urandom | split -b 4096 -a 5 -")
    try container.store.importItem(at: directory + "/small", to: "/small")
    try await container.synchronize()
    for _ in 0..<3 {
      let sent = try await seconds { try await send("/small", from: container, to: receiver) }
      let time = try await seconds { try await deliver("/small", services, Self.provider + ".durable") }
      print(
        "\(count) files of 4 KiB in one message, durable\t\(text(time, 3)) s\tsend \(text(sent, 3)) s\t\(text(sent / time, 2))"
      )
    }
  }
}
