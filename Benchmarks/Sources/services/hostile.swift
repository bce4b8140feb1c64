import AppKinetics
@preconcurrency import Dispatch
import Foundation
import LocalTransport
import ServiceValues
import ServiceWire
import SodiumPrimitives
import Synchronization
import UnixSockets

/// A kind of flood with which a hostile sandbox attacks at full effort, from ten ids or 64 connections.
enum Flood: String, CaseIterable {
  /// Floods of the broker: questions, introductions, registrations, registrations of lists of nothing, connections that are closed before
  /// their handshake.
  case find, dial, register, services, connect
  /// Floods of an app: messages that need no answer, calls, calls whose replies are not read, requests that nobody answers, texts that cost
  /// the square of their length to normalise, lists of files, params that are lists of nothing, questions whose answers are not read.
  case pongs, calls, silent, keep, texts, lists, elements, pings
  /// Keys of objects that cost most for their bytes; messages of files without bytes in many folders and in one, which are committed;
  /// such messages whose replies are not taken.
  case keys, folders, files, replies
  /// Each id floods the app in another way.
  case mixed

  static let idCount = 10
  static let connectionCount = 64
  static let threadCount = 8

  /// Until the process is ended.
  func run(broker path: String, target: String) async throws {
    try await withThrowingTaskGroup(of: Void.self) { group in
      switch self {
      case .connect:
        for _ in 0..<Self.threadCount { group.addTask { try await Self.connect(path) } }
      case .find:
        for i in 0..<Self.connectionCount {
          group.addTask { try await Self.find(path, i) }
        }
      case .dial, .register, .services:
        for i in 0..<Self.idCount {
          let app = try await HostileApp("com.hostile.app\(i)", broker: path)
          group.addTask {
            while true { await self.ask(app, target) }
          }
        }
      case .mixed:
        let kinds: [Flood] = [
          .keys, .keep, .folders, .files, .replies, .silent, .lists, .elements, .calls, .pings,
        ]
        for (i, kind) in kinds.enumerated() {
          let app = try await HostileApp("com.hostile.app\(i)", broker: path)
          group.addTask { await kind.flood(app, target) }
        }
      case .pongs, .calls, .silent, .keep, .texts, .lists, .elements, .pings, .keys, .folders, .files,
        .replies:
        for i in 0..<Self.idCount {
          let app = try await HostileApp("com.hostile.app\(i)", broker: path)
          group.addTask { await self.flood(app, target) }
          group.addTask { await self.flood(app, target) }
        }
      }
      ready()
      try await group.waitForAll()
    }
  }

  // MARK: The broker

  private static func connect(_ path: String) async throws {
    while true {
      _ = try? UnixConnection.dial(path: path, deadline: nil).descriptorNumber
      await Task.yield()
    }
  }

  private static func find(_ path: String, _ i: Int) async throws {
    while true {
      // A client that was closed begins again.
      guard let client = try? await BrokerClient.attend(path: path, name: "\(i)", broker: nil) else {
        try await Task.sleep(for: .milliseconds(10))
        continue
      }
      await withTaskGroup(of: Void.self) { group in
        for _ in 0..<48 {
          group.addTask {
            while (try? await client.ask(.find(.with { $0.serviceID = "com.example.none" }))) != nil {}
          }
        }
      }
    }
  }

  private func ask(_ app: HostileApp, _ target: String) async {
    switch self {
    case .dial: await Self.dial(app, target)
    case .services: await Self.registerNothing(app)
    default: await Self.register(app)
    }
  }

  /// The connection ends with it, and another one begins.
  private static func registerNothing(_ app: HostileApp) async {
    guard let again = try? await HostileApp(app.appID, broker: app.path, key: app.key) else {
      try? await Task.sleep(for: .milliseconds(10))
      return
    }
    _ = try? await again.client.ask(.register(.with { $0.services = nothing }))
  }

  private static let nothing = Array(repeating: WireService(), count: 300_000)

  private static func dial(_ app: HostileApp, _ target: String) async {
    _ = try? await app.dial(target) { _, _ in }.close()
  }

  private static func register(_ app: HostileApp) async {
    // Each differs from the one before, so that all of it is written down.
    let methods = (0..<1000).map { #", "m\#($0)": {"params": {"type": "any"}}"# }.joined()
    let name = UUID().uuidString
    _ = try? await app.client.ask(
      .register(
        .with {
          $0.name = name
          $0.services = (0..<10).map { i in
            let id = "com.hostile.service\(i)"
            return .with {
              $0.id = id
              $0.version = "1.0.0.0"
              $0.definition = Data((text(of: id).dropLast(2) + methods + "}}").utf8)
            }
          }
        }))
  }

  // MARK: An app

  private func flood(_ app: HostileApp, _ target: String) async {
    while true {
      guard let channel = try? await app.dial(target, received: { self.received($1, of: app, over: $0) })
      else {
        try? await Task.sleep(for: .milliseconds(10))
        continue
      }
      let batch = self.batch()
      if sendsOffers { _ = channel.send([offer(app)]) }
      while !channel.hasEnded {
        if channel.queuedByteCount > 1 << 20 || sendsOffers {
          try? await Task.sleep(for: .milliseconds(1))
          continue
        }
        switch self {
        case .elements: _ = channel.send([Self.manyElements])
        case .calls, .silent, .keep, .texts, .keys:
          let count = min(channel.credit, self == .keys ? 1 : 64)
          guard count > 0 else {
            try? await Task.sleep(for: .milliseconds(1))
            continue
          }
          channel.grant(-count)
          _ = channel.send((0..<count).map { _ in self.request() })
        default: _ = channel.send(batch)
        }
        await Task.yield()
      }
      channel.close()
    }
  }

  private var sendsOffers: Bool { [.lists, .folders, .files, .replies].contains(self) }

  private func received(_ message: WireChannelMessage, of app: HostileApp, over channel: HostileChannel) {
    switch message.kind {
    case .reply where self == .silent, .pong where self == .pings:
      // The thread that reads the channel reads no more of it.
      while !channel.hasEnded { Thread.sleep(forTimeInterval: 1) }
    case .hello(let hello): channel.grant(Int(hello.requests))
    case .credit(let credit): channel.grant(Int(credit.more))
    case .reply(let reply): _ = channel.send([.with { $0.replyAccepted.id = reply.id }])
    case .ping(let ping): _ = channel.send([.with { $0.pong.number = ping.number }])
    case .manifestWanted(let wanted):
      _ = channel.send([
        .with {
          $0.manifestPage.id = wanted.id
          $0.manifestPage.from = wanted.from
          $0.manifestPage.files = page(from: wanted.from)
        }
      ])
    case .deliveryRefused: _ = channel.send([offer(app)])
    case .committed: _ = channel.send([offer(app)])
    case .offer(let offer) where self != .replies:
      let refused = WireChannelMessage.with {
        $0.deliveryRefused.id = offer.id
        $0.deliveryRefused.failure.error = 1
      }
      _ = channel.send([refused])
    default: break
    }
  }

  private static let folder = String(repeating: "/" + String(repeating: "x", count: 250), count: 30)

  private var fileCount: UInt64 {
    switch self {
    case .folders: 100
    case .files: 20_000
    case .replies: 1
    default: 1 << 20
    }
  }

  private func page(from: UInt64) -> [WireOfferedFile] {
    let count: UInt64 =
      switch self {
      case .folders: 50
      case .files: 256
      case .replies: 1
      default: 8
      }
    return (from..<min(from + count, fileCount)).map { number in
      let path =
        switch self {
        case .folders: "/\(number)" + String(repeating: "/a", count: 123) + "/f"
        case .files, .replies: "/\(number)"
        default: Self.folder + "/\(number)"
        }
      return .with { $0.path = Data(path.utf8) }
    }
  }

  private func offer(_ app: HostileApp) -> WireChannelMessage {
    .with {
      $0.offer.id = Identifier.random().data
      $0.offer.number = app.nextNumber()
      // The messages of the other channel may be under way.
      $0.offer.floor = max($0.offer.number, 65) - 64
      $0.offer.incarnation = app.incarnation
      $0.offer.fileCount = fileCount
      $0.offer.request.id = $0.offer.id
      $0.offer.request.serviceID = definition.serviceID.text
      $0.offer.request.version = definition.version.text
      $0.offer.request.method = "files"
      $0.offer.request.attachments = fileCount
    }
  }

  private func request() -> WireChannelMessage {
    .with {
      $0.request.id = Identifier.random().data
      $0.request.serviceID = definition.serviceID.text
      $0.request.version = definition.version.text
      $0.request.method = self == .keep ? "keep" : "echo"
      switch self {
      // Many small values cost more memory than their bytes.
      case .keep:
        $0.request.params.array.elements = Array(repeating: .with { $0.boolean = true }, count: 16_000)
      case .texts: $0.request.params.object.members = [.with { $0.name = Self.marks }]
      case .keys: $0.request.params.object.members = Self.costlyKeys
      default: $0.request.params.bytes = Data(count: byteCount)
      }
    }
  }

  private static let marks =
    String(repeating: "\u{301}", count: 16_000) + String(repeating: "\u{316}", count: 16_000)

  /// The keys of one object, 1 MiB together.
  private static let costlyKeys = (0..<3800).map { number in
    WireValue.Member.with {
      $0.name = "\(number)a" + String(Self.marks.unicodeScalars.dropFirst(15_940).prefix(120))
      $0.value.boolean = true
    }
  }

  private func batch() -> [WireChannelMessage] {
    self == .pings
      ? Array(repeating: .with { $0.ping.number = .max }, count: 4096)
      : Array(repeating: .with { $0.pong.number = .max }, count: 4096)
  }

  /// Nearly as long as a message may be.
  private static let manyElements = WireChannelMessage.with {
    $0.request.id = Identifier.random().data
    $0.request.params.object.members = Array(repeating: WireValue.Member(), count: 500_000)
  }
}

/// Calls of an honest app beside what a hostile sandbox does to the provider and the broker.
struct HostileBenchmark {
  let seconds: Int

  struct Figures {
    var calls: [Double] = []
    var finds: [Double] = []
    /// Starts of apps, which dial the broker and enrol, and their first calls to a provider that they never met; infinite
    /// when they failed.
    var starts: [Double] = []
    var firsts: [Double] = []
    var providerKiB = 0
    var brokerKiB = 0
  }

  func run(_ kinds: [Flood]) async throws {
    let columns = [
      "beside", "calls", "median/us", "p99/us", "max/us", "find p99/us", "start median/us", "start max/us",
      "first median/us", "first max/us", "provider MiB", "broker MiB", "p99 ratio",
    ]
    FileHandle.standardOutput.write(Data((columns.joined(separator: "\t") + "\n").utf8))
    // The baselines do not change with time.
    let baseline = HostileBenchmark(seconds: min(seconds, 30))
    let quiet = try await baseline.measure(nil)
    report("nothing", quiet, nil)
    let burn = try await baseline.measure(["burn"])
    report("\(Flood.threadCount) threads that burn", burn, nil)
    for kind in kinds { report(kind.rawValue, try await measure(["attack", kind.rawValue]), burn) }
  }

  private func report(_ name: String, _ figures: Figures, _ baseline: Figures?) {
    let ratio = baseline.map { text(percentile(figures.calls, 99) / percentile($0.calls, 99), 2) } ?? "-"
    let line = [
      name, "\(figures.calls.count)", text(percentile(figures.calls, 50), 0),
      text(percentile(figures.calls, 99), 0), text(figures.calls.max() ?? .nan, 0),
      text(percentile(figures.finds, 99), 0), text(percentile(figures.starts, 50), 0),
      text(figures.starts.max() ?? .nan, 0), text(percentile(figures.firsts, 50), 0),
      text(figures.firsts.max() ?? .nan, 0), text(Double(figures.providerKiB) / 1024, 1),
      text(Double(figures.brokerKiB) / 1024, 1), ratio,
    ]
    FileHandle.standardOutput.write(Data((line.joined(separator: "\t") + "\n").utf8))
  }

  private func percentile(_ times: [Double], _ percent: Int) -> Double {
    times.isEmpty ? .infinity : times.sorted()[times.count * percent / 100]
  }

  /// Everything is begun anew, so that peaks of memory are of this flood alone.
  private func measure(_ other: [String]?) async throws -> Figures {
    let directory = NSTemporaryDirectory() + "/hostile-\(UUID().uuidString.prefix(8))"
    try FileManager.default.createDirectory(
      atPath: directory, withIntermediateDirectories: true, attributes: [.posixPermissions: 0o700])
    defer { try? FileManager.default.removeItem(atPath: directory) }
    let broker = try process("broker", directory)
    defer { broker.terminate() }
    let target = "com.example.provider"
    let provider = try process("provide-all", directory, target)
    defer { provider.terminate() }
    let services = try app("com.example.consumer", directory)
    try await services.start()
    var hostile: Process?
    if let other { hostile = try self.hostile(other + [directory, target]) }
    defer { hostile?.terminate() }
    var figures = try await calls(services, to: ApplicationID(target))
    try await measureFirstCalls(directory, to: ApplicationID(target), &figures)
    figures.providerKiB = try peakKiB(provider.processIdentifier)
    figures.brokerKiB = try peakKiB(broker.processIdentifier)
    await services.stop()
    return figures
  }

  /// In a sandbox: of other namespaces than the broker.
  private func hostile(_ words: [String]) throws -> Process {
    let process = Process()
    let output = Pipe()
    process.executableURL = URL(fileURLWithPath: "/usr/bin/unshare")
    let own = URL(fileURLWithPath: "/proc/self/exe").resolvingSymlinksInPath().path
    process.arguments = ["--user", "--map-current-user", "--mount", own] + words
    process.standardOutput = output
    try process.run()
    guard !output.fileHandleForReading.availableData.isEmpty else {
      throw ServicesError(.general, detail: "\(words) did not begin")
    }
    return process
  }

  private func measureFirstCalls(
    _ directory: String, to target: ApplicationID, _ figures: inout Figures
  ) async throws {
    for i in 0..<20 {
      let services = try app("com.example.first\(i)", directory)
      figures.starts.append(await time("start") { try await services.start() })
      figures.firsts.append(
        await time("first call") { _ = try await services.call(echoRequest, to: target) })
      await services.stop()
    }
  }

  /// In microseconds; infinite for one that failed.
  private func time(_ name: String, _ body: () async throws -> Void) async -> Double {
    do { return try await time(body) } catch {
      FileHandle.standardError.write(Data("a \(name) failed: \(error)\n".utf8))
      return .infinity
    }
  }

  private func time(_ body: () async throws -> Void) async rethrows -> Double {
    let begin = DispatchTime.now().uptimeNanoseconds
    try await body()
    return Double(DispatchTime.now().uptimeNanoseconds - begin) / 1000
  }

  private func calls(_ services: AppServices, to target: ApplicationID) async throws -> Figures {
    let end = DispatchTime.now().uptimeNanoseconds + UInt64(seconds) * 1_000_000_000
    var figures = Figures()
    while DispatchTime.now().uptimeNanoseconds < end {
      for _ in 0..<20 {
        figures.calls.append(try await time { _ = try await services.call(echoRequest, to: target) })
      }
      figures.finds.append(
        try await time { _ = try await services.providers(of: definition.serviceID) })
    }
    return figures
  }

  /// As many threads as a hostile app keeps busy.
  static func burn() async throws {
    for _ in 0..<Flood.threadCount {
      Thread.detachNewThread {
        var number: UInt64 = 1
        while true { number = number &* 6_364_136_223_846_793_005 &+ 1 }
      }
    }
    ready()
    try await forever()
  }
}
