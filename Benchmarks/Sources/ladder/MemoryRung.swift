import ArgumentParser
import ContainerStore
import Foundation

/// Peak resident memory of a process that sends a large file, and of one that sends a small file.
struct MemoryRung {
  let bench: Bench

  func measure() throws {
    let sizes = [1 << 20, bench.memorySize]
    var peaks: [MemoryPeak] = []
    for size in sizes {
      var peak = MemoryPeak(name: "send \(Self.text(size)) from container to container", fileByteCount: size)
      try bench.workspace.makeIncompressibleFile("plain", byteCount: size)
      try child("fill")
      try bench.workspace.remove("plain")
      // The figure hardly moves, and each repetition writes the whole file.
      for _ in 0..<min(bench.repetitions, 3) {
        peak.peakByteCounts.append(try child("send"))
        try bench.workspace.remove("receiver")
      }
      try bench.workspace.remove("source")
      peaks.append(peak)
    }
    bench.add(peaks)
  }

  @discardableResult
  private func child(_ step: String) throws -> Int {
    try Child.run(
      Child.ownExecutable,
      [MemoryChild.configuration.commandName!, step, "--directory", bench.workspace.path])
  }

  private static func text(_ byteCount: Int) -> String {
    byteCount % (1 << 30) == 0 ? "\(byteCount >> 30) GiB" : "\(byteCount >> 20) MiB"
  }
}

struct MemoryPeak: Encodable {
  var name: String
  var fileByteCount: Int
  /// Of each child process.
  var peakByteCounts: [Int] = []
}

/// What the memory rung runs in processes of their own.
struct MemoryChild: ParsableCommand {
  static let configuration = CommandConfiguration(commandName: "memory-child", shouldDisplay: false)

  enum Step: String, ExpressibleByArgument {
    /// Imports `plain` into a new container `source`.
    case fill
    /// Sends what is in `source` to a new container `receiver`.
    case send
  }

  @Argument var step: Step
  @Option var directory: String

  func run() throws {
    switch step {
    case .fill:
      let source = try Workspace.create(directory + "/source", .grouped)
      try source.importItem(at: directory + "/plain", to: "/large")
      try source.close()
    case .send:
      let source = try Workspace.open(directory + "/source", .readOnly)
      let receiver = try Workspace.create(directory + "/receiver", .grouped)
      _ = try source.send(["/large"], to: receiver, sender: "ladder")
      try receiver.close()
      try source.close()
    }
  }
}
