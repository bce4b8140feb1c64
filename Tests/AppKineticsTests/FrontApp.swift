import AppKineticsTesting
import Foundation
import LocalTransport
import Locks
import ServiceWire
import Testing

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

extension TestApps {
  /// An app in a process of its own, which is ready.
  func frontApp(_ id: String) async throws -> FrontApp {
    let app = try FrontApp(id, self)
    try app.start()
    try await app.expect("ready")
    return app
  }

  /// An administrator names the program that starts the app.
  func install(_ app: FrontApp) async throws {
    let administrator = try await administrator()
    defer { administrator.close() }
    let (appID, words) = (app.id, app.words)
    _ = try await administrator.ask(
      .administer(
        .with {
          $0.install.appID = appID
          $0.install.program.path = words[0]
          $0.install.program.arguments = Array(words.dropFirst())
        }))
  }

  /// Returns when the app does not run any more.
  func awaitEnd(of app: FrontApp) async throws {
    let administrator = try await administrator()
    defer { administrator.close() }
    while try await administrator.apps().apps.contains(where: {
      $0.provider.appID == app.id && $0.provider.state != .notRunning
    }) { await Task.yield() }
  }
}

/// The program `FrontApp` (Tests/FrontApp), one process after another: it takes lines, and says what happens. Its input and
/// output are pipes with names, so that the broker may start it as well.
final class FrontApp: Sendable {
  let id: String
  /// The command that runs it.
  let words: [String]
  private let input: FileHandle
  private let output: FileHandle
  private let lines: AsyncStream<String>
  private let continuation: AsyncStream<String>.Continuation
  private let passedOver = Guarded<[String]>([])
  private let isOver = Guarded(false)
  private let process = Guarded<Process?>(nil)

  init(_ id: String, _ world: TestApps) throws {
    self.id = id
    let program = URL(fileURLWithPath: CommandLine.arguments[0]).deletingLastPathComponent()
      .appendingPathComponent("FrontApp").path
    let container = world.directory.appendingPathComponent(id).path
    let (inputPath, outputPath) = (container + ".in", container + ".out")
    words = [
      "/bin/sh", "-c", "exec \"$0\" \"$1\" \"$2\" \"$3\" <\"$4\" >\"$5\"", program,
      world.socketPath, container, id, inputPath, outputPath,
    ]
    input = try Self.pipe(inputPath)
    output = try Self.pipe(outputPath)
    (lines, continuation) = AsyncStream.makeStream()
    let (output, continuation, isOver) = (output, continuation, isOver)
    Thread.detachNewThread {
      var rest = Data()
      while case let bytes = output.availableData, !bytes.isEmpty, !isOver.withLock({ $0 }) {
        rest.append(bytes)
        while let end = rest.firstIndex(of: 10) {
          continuation.yield(String(decoding: rest[..<end], as: UTF8.self))
          rest = rest[(end + 1)...]
        }
      }
    }
  }

  /// Opens both of its ends, so that it waits for no process, and stays open from one to the next.
  private static func pipe(_ path: String) throws -> FileHandle {
    guard mkfifo(path, 0o600) == 0, case let descriptor = open(path, O_RDWR | O_CLOEXEC), descriptor >= 0
    else { throw POSIXError(.EIO) }
    return FileHandle(fileDescriptor: descriptor, closeOnDealloc: true)
  }

  deinit {
    process.withLock { if let process = $0, process.isRunning { kill(process.processIdentifier, SIGKILL) } }
    isOver.withLock { $0 = true }
    // The thread that reads wakes, and ends.
    try? output.write(contentsOf: Data("\n".utf8))
  }

  /// Runs it as the user does, with these variables besides. `errors`: where its standard error goes.
  func start(environment: [String: String] = [:], errors: FileHandle = .standardError) throws {
    let process = Process()
    process.environment = ProcessInfo.processInfo.environment.merging(environment) { $1 }
    process.executableURL = URL(fileURLWithPath: words[0])
    process.arguments = Array(words.dropFirst())
    process.standardError = errors
    process.terminationHandler = { [continuation] in continuation.yield("ended \($0.terminationStatus)") }
    try process.run()
    self.process.withLock { $0 = process }
  }

  /// Ends the process that ``start()`` has begun.
  func end() async throws {
    try tell("quit")
    try await expect("ended 0")
  }

  func tell(_ line: String) throws { try input.write(contentsOf: Data((line + "\n").utf8)) }

  /// Tells it something, and returns what came of that.
  func result(of line: String) async throws -> String {
    try tell(line)
    return try await value(of: line.split(separator: " ").first.map(String.init) ?? "")
  }

  /// Returns what stands behind the name in the next line that begins with it.
  func value(of name: String) async throws -> String {
    let prefix = name + ": "
    return try await String(next { $0.hasPrefix(prefix) }.dropFirst(prefix.count))
  }

  /// Returns when it has said the line. Each line counts once, and lines before it may be expected later.
  func expect(_ line: String) async throws { _ = try await next { $0 == line } }

  /// Returns when its process has been killed.
  func awaitKill() async throws { try await expect("ended \(SIGKILL)") }

  private func next(_ isMeant: (String) -> Bool) async throws -> String {
    let said = passedOver.withLock { lines in lines.firstIndex(where: isMeant).map { lines.remove(at: $0) } }
    if let said { return said }
    for await line in lines {
      if isMeant(line) { return line }
      guard !line.hasPrefix("ended ") else { throw POSIXError(.EPIPE) }
      passedOver.withLock { $0.append(line) }
    }
    throw POSIXError(.EPIPE)
  }
}
