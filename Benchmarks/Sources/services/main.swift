// Requests and replies over the whole interface, between processes of their own.
//
//   services-benchmark measure COUNT     a line as it comes, and one for a provider that named a callback queue: name, median and 99th percentile
//                                        of a call in µs, requests a second when many are under way; then the first call of apps
//                                        that never met the provider
//   services-benchmark memory            the broker's resident memory with 100 apps and 10,000 requests under way, in KiB
//   services-benchmark deliver MIB REPETITIONS FILES [DIR]
//                                        a file of so many MiB from process to process, beside cp; peak memory; calls beside it; many small files
//   services-benchmark senders MIB [DIR] a file of so many MiB of 1, 4 and 16 processes to one at once: memory of each beyond its rest
//   services-benchmark seal ROUNDS FILES [DIR]
//                                        closing at once under 64 threads that write, opening again with so many files, destroying
//   services-benchmark runtime ROUNDS    an app whose keys go while others send it files of 1 MiB, and come back; the begin of an app's test; a check of the keys
//   services-benchmark hostile SECONDS [FLOOD...]
//                                        calls of an honest app beside each flood of a hostile sandbox, and beside threads that burn
//   services-benchmark broker DIR        (the other processes)
//   services-benchmark provide DIR APP_ID runtime|queue
//   services-benchmark provide-files DIR APP_ID none|full
//   services-benchmark send-files DIR APP_ID TARGET
//   services-benchmark provide-all DIR APP_ID
//   services-benchmark attack FLOOD DIR APP_ID; burn DIR APP_ID
//   services-benchmark hold MIB
import AppKinetics
import CPosix
@preconcurrency import Dispatch
import Foundation
import Logging
import SecureFiles
import ServiceBroker

// As the program `dynamics` does.
cposix_limit_arenas()

let byteCount = 64
let underWayMax = 1000
let definition = try ServiceDefinition(jsonText: text(of: "com.example.echo"))
let echoRequest = ServiceRequest(
  service: definition.serviceID, version: definition.version, method: "echo",
  params: .bytes([UInt8](repeating: 7, count: byteCount)))

func text(of service: String) -> String {
  let method = #"{"params": {"type": "UInt8Array"}, "result-value": {"type": "UInt8Array"}}"#
  let files = #"{"params": {"type": "any"}, "attachments": {"minItems": 0}}"#
  let keep = #"{"params": {"type": "any"}}"#
  return
    #"{"service-id": "\#(service)", "version": "1.0.0.0", "methods": "#
    + #"{"echo": \#(method), "keep": \#(keep), "files": \#(files)}}"#
}

func configuration(_ directory: String) -> ServiceBroker.Configuration {
  var configuration = ServiceBroker.Configuration()
  configuration.plainApps = .open(200)
  configuration.sandboxedApps = .open(20)
  configuration.socketPath = directory + "/run/broker"
  configuration.stateDirectory = directory + "/state"
  return configuration
}

func app(_ id: String, _ directory: String, callbackQueue: DispatchQueue? = nil) throws -> AppServices {
  let key = try SecretBytes(utf8: String(repeating: "k", count: 32))
  let container = try SecureContainer.create(
    at: URL(fileURLWithPath: directory).appendingPathComponent(id), rawKey: key)
  var options = AppServices.Options()
  options.broker = configuration(directory).socketPath
  options.callbackQueue = callbackQueue
  return try AppServices(
    Application(id: ApplicationID(id), name: id), container: container, options: options)
}

/// Starts this program once more, and waits for its first line.
func process(_ arguments: String...) throws -> Process {
  let process = Process()
  let output = Pipe()
  process.executableURL = URL(fileURLWithPath: "/proc/self/exe").resolvingSymlinksInPath()
  process.arguments = arguments
  process.standardOutput = output
  try process.run()
  guard !output.fileHandleForReading.availableData.isEmpty else {
    throw ServicesError(.general, detail: "\(arguments) did not begin")
  }
  return process
}

func ready() { FileHandle.standardOutput.write(Data("ready\n".utf8)) }

/// The most resident memory that a process ever had.
func peakKiB(_ process: Int32) throws -> Int {
  try kibibytes("VmHWM:", in: "/proc/\(process)/status")
}

/// The number of a line in a file of the kernel; 0 without such a line.
func kibibytes(_ name: String, in file: String) throws -> Int {
  let text = try String(contentsOfFile: file, encoding: .utf8)
  let line = text.split(separator: "\n").first { $0.hasPrefix(name) } ?? ""
  return line.split(whereSeparator: { " \t".contains($0) }).dropFirst().first.flatMap { Int($0) } ?? 0
}

/// Resident memory now, from where ``peakKiB(_:)`` counts afresh.
func resetPeakKiB(_ process: Int32) throws -> Int {
  try Data("5".utf8).write(to: URL(fileURLWithPath: "/proc/\(process)/clear_refs"))
  return try peakKiB(process)
}

func forever() async throws { while true { try await Task.sleep(for: .seconds(3600)) } }

func measure(_ name: String, _ count: Int, _ services: AppServices, provider: String = "runtime")
  async throws
{
  let target = try ApplicationID("com.example.provider.\(provider)")
  for _ in 0..<1000 { try await services.call(echoRequest, to: target) }

  var times: [Double] = []
  times.reserveCapacity(count)
  for _ in 0..<count {
    let begin = DispatchTime.now().uptimeNanoseconds
    let reply = try await services.call(echoRequest, to: target)
    times.append(Double(DispatchTime.now().uptimeNanoseconds - begin) / 1000)
    guard reply?.params == echoRequest.params else { throw ServicesError(.general, detail: "another reply") }
  }
  times.sort()

  let begin = DispatchTime.now().uptimeNanoseconds
  var sent: [SentRequest] = []
  var next = 0
  for _ in 0..<count {
    sent.append(try await services.send(echoRequest, to: target))
    if sent.count - next == underWayMax {
      _ = try await sent[next].reply()
      next += 1
    }
  }
  for sent in sent[next...] { _ = try await sent.reply() }
  let seconds = Double(DispatchTime.now().uptimeNanoseconds - begin) / 1e9
  print(
    [
      name, text(times[count / 2], 1), text(times[count * 99 / 100], 1),
      text(Double(count) / seconds, 0),
    ]
    .joined(separator: "\t"))
}

/// The first call of apps that never met the provider: introduction, handshake, request and reply.
func measureFirst(_ directory: String, count: Int) async throws {
  let target = try ApplicationID("com.example.provider.runtime")
  var times: [Double] = []
  for i in 0..<count {
    let services = try app("com.example.first\(i)", directory)
    try await services.start()
    let begin = DispatchTime.now().uptimeNanoseconds
    let reply = try await services.call(echoRequest, to: target)
    times.append(Double(DispatchTime.now().uptimeNanoseconds - begin) / 1000)
    guard reply?.params == echoRequest.params else { throw ServicesError(.general, detail: "another reply") }
    await services.stop()
  }
  times.sort()
  print(
    ["services-first", text(times[count / 2], 1), text(times[count * 99 / 100], 1), "-"].joined(
      separator: "\t"))
}

func text(_ value: Double, _ digits: Int) -> String { String(format: "%.\(digits)f", value) }

/// 100 apps, each of which has 100 requests at the next one that nobody answers.
func memory(_ directory: String, _ broker: Process) async throws {
  print("broker alone, peak KiB\t\(try peakKiB(broker.processIdentifier))")
  var apps: [AppServices] = []
  for i in 0..<100 {
    let services = try app("com.example.app\(i)", directory)
    try services.offer(definition) { _ in
      try await forever()
      return .noReply
    }
    try await services.start()
    apps.append(services)
  }
  print("with 100 apps, peak KiB\t\(try peakKiB(broker.processIdentifier))")
  let request = ServiceRequest(
    service: definition.serviceID, version: definition.version, method: "keep",
    params: .bytes([UInt8](repeating: 7, count: byteCount)))
  var sent: [SentRequest] = []
  for i in apps.indices {
    let target = apps[(i + 1) % apps.count].application.id
    for _ in 0..<100 { sent.append(try await apps[i].send(request, to: target)) }
  }
  for sent in sent { try await sent.delivered() }
  print("and 10000 requests under way, peak KiB\t\(try peakKiB(broker.processIdentifier))")
}

let arguments = CommandLine.arguments.dropFirst()
switch (arguments.first, arguments.dropFirst().first) {
case ("broker", let directory?):
  let broker = try await ServiceBroker.start(configuration(directory), logger: Logger(label: "broker"))
  ready()
  try await forever()
  await broker.stop()
case ("provide", let directory?):
  let words = Array(arguments)
  let queue = words[3] == "queue" ? DispatchQueue(label: "com.example.handlers") : nil
  let services = try app(words[2], directory, callbackQueue: queue)
  try services.offer(definition) { .reply($0.params) }
  try await services.start()
  ready()
  try await forever()
case ("provide-files", let directory?):
  let words = Array(arguments)
  try await DeliveryBenchmark.provide(directory, words[2], durability: words[3] == "none" ? .none : .full)
case ("send-files", let directory?):
  let words = Array(arguments)
  try await SendersBenchmark.send(directory, words[2], to: words[3])
case ("provide-all", let directory?):
  let services = try app(Array(arguments)[2], directory)
  try services.offer(definition) { request in
    if request.method == "keep" { try await forever() }
    if request.method == "files" { try await request.removeAttachments() }
    return .reply(request.params)
  }
  try await services.start()
  ready()
  try await forever()
case ("hostile", let seconds?):
  let kinds = arguments.dropFirst(2).compactMap(Flood.init)
  try await HostileBenchmark(seconds: Int(seconds) ?? 10).run(kinds.isEmpty ? Flood.allCases : kinds)
case ("attack", let kind?):
  let words = Array(arguments)
  guard let flood = Flood(rawValue: kind) else { throw ServicesError(.general, detail: kind) }
  try await flood.run(broker: configuration(words[2]).socketPath, target: words[3])
case ("burn", _): try await HostileBenchmark.burn()
case ("hold", let mebibytes?):
  HeldMemory.hold(mebibytes: Int(mebibytes) ?? 0)
  ready()
  try await forever()
case ("runtime", let text):
  guard let rounds = text.flatMap({ Int($0) }) else {
    throw ServicesError(.general, detail: "runtime ROUNDS")
  }
  try await RuntimeBenchmark(rounds: rounds).run()
case ("measure", _), ("memory", _), ("deliver", _), ("senders", _), ("seal", _):
  let words = Array(arguments)
  let placeIndex = ["deliver": 4, "senders": 2, "seal": 3][words[0]]
  let place = placeIndex.flatMap { words.count > $0 ? words[$0] : nil } ?? NSTemporaryDirectory()
  let directory = place + "/services-benchmark-\(ProcessInfo.processInfo.processIdentifier)"
  try FileManager.default.createDirectory(
    atPath: directory, withIntermediateDirectories: true, attributes: [.posixPermissions: 0o700])
  defer { try? FileManager.default.removeItem(atPath: directory) }
  let broker = try process("broker", directory)
  defer { broker.terminate() }
  if arguments.first == "memory" {
    try await memory(directory, broker)
  } else if arguments.first == "senders" {
    guard words.count > 1, let mebibytes = Int(words[1]) else {
      throw ServicesError(.general, detail: "senders MIB [DIR]")
    }
    let held = try process("hold", "\(HeldMemory.halfOfAvailable())")
    defer { held.terminate() }
    try SendersBenchmark(directory: directory, byteCount: mebibytes << 20, broker: broker).run()
  } else if arguments.first == "seal" {
    guard words.count > 2, let rounds = Int(words[1]), let files = Int(words[2]) else {
      throw ServicesError(.general, detail: "seal ROUNDS FILES [DIR]")
    }
    try await SealBenchmark(directory: directory, rounds: rounds, fileCount: files).run()
  } else if arguments.first == "deliver" {
    guard words.count > 3, let mebibytes = Int(words[1]), let repetitions = Int(words[2]),
      let files = Int(words[3])
    else { throw ServicesError(.general, detail: "deliver MIB REPETITIONS FILES [DIR]") }
    let held = try process("hold", "\(HeldMemory.halfOfAvailable())")
    defer { held.terminate() }
    try await DeliveryBenchmark(directory: directory, byteCount: mebibytes << 20, broker: broker)
      .run(repetitions: repetitions, fileCount: files)
  } else {
    let providers = try ["runtime", "queue"].map {
      try process("provide", directory, "com.example.provider.\($0)", $0)
    }
    defer { for provider in providers { provider.terminate() } }
    let count = Int(arguments.dropFirst().first ?? "") ?? 20_000
    let services = try app("com.example.consumer", directory)
    try await services.start()
    try await measure("services", count, services)
    try await measure("services-queue", count, services, provider: "queue")
    try await measureFirst(directory, count: 100)
    await services.stop()
  }
default:
  FileHandle.standardError.write(
    Data(
      ("usage: services-benchmark measure COUNT | memory | deliver MIB REPETITIONS FILES [DIR] "
        + "| senders MIB [DIR] | hostile SECONDS\n").utf8))
  exit(64)
}
