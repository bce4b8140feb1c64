import Foundation

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

/// A program beside the test bundle, as a process.
package final class Program: Sendable {
  private let process = Process()
  private let input: FileHandle
  private let lines: AsyncStream<String>
  private let ended: AsyncStream<Int32>

  /// Starts it with this environment alone, and PATH.
  package init(_ name: String, _ arguments: [String], environment: [String: String]) throws {
    let bundle = URL(fileURLWithPath: CommandLine.arguments[0]).deletingLastPathComponent()
    let (inputPipe, pipe) = (Pipe(), Pipe())
    process.executableURL = bundle.appendingPathComponent(name)
    process.arguments = arguments
    process.environment = environment.merging(["PATH": "/usr/bin:/bin"]) { own, _ in own }
    input = inputPipe.fileHandleForWriting
    process.standardInput = inputPipe
    process.standardOutput = pipe
    let (lines, lineContinuation) = AsyncStream<String>.makeStream()
    let (ended, endContinuation) = AsyncStream<Int32>.makeStream()
    (self.lines, self.ended) = (lines, ended)
    process.terminationHandler = {
      endContinuation.yield($0.terminationStatus)
      endContinuation.finish()
    }
    // Who types to a program that has ended is told by the call.
    _ = Foundation.signal(SIGPIPE, SIG_IGN)
    try process.run()
    let output = pipe.fileHandleForReading
    Thread.detachNewThread {
      var rest = Data()
      while case let bytes = output.availableData, !bytes.isEmpty {
        rest.append(bytes)
        while let end = rest.firstIndex(of: 10) {
          lineContinuation.yield(String(decoding: rest[..<end], as: UTF8.self))
          rest = rest[(end + 1)...]
        }
      }
      lineContinuation.finish()
    }
  }

  deinit { if process.isRunning { kill(process.processIdentifier, SIGKILL) } }

  package func line() async -> String? {
    for await line in lines { return line }
    return nil
  }

  /// What stands behind `beginning` in the next line that begins so. Other lines before it are passed over.
  package func line(beginning: String) async throws -> String {
    for await line in lines where line.hasPrefix(beginning) { return String(line.dropFirst(beginning.count)) }
    throw POSIXError(.EPIPE)
  }

  /// What the user types.
  package func type(_ line: String) throws { try input.write(contentsOf: Data((line + "\n").utf8)) }

  package func output() async throws -> [String] {
    var all: [String] = []
    for await line in lines { all.append(line) }
    _ = await end()
    return all
  }

  package func signal(_ number: Int32) { kill(process.processIdentifier, number) }

  /// The exit code, or the number of the signal that ended it.
  package func end() async -> Int32 {
    for await status in ended { return status }
    return -1
  }
}
