import AppKinetics
@preconcurrency import Dispatch
import Foundation
import SecureFiles

/// How long it takes until a container's keys are gone, until it is back with its services, and until nothing opens it any more.
struct SealBenchmark {
  let directory: String
  let rounds: Int
  let fileCount: Int

  private static let writerCount = 64
  private static let writtenByteCount = 1 << 30
  private static let pieceByteCount = 1 << 20

  private func url(_ name: String) -> URL { URL(fileURLWithPath: directory).appendingPathComponent(name) }
  private func key() throws -> SecretBytes { try SecretBytes(utf8: String(repeating: "k", count: 32)) }

  private static func milliseconds(_ body: () throws -> Void) rethrows -> Double {
    let begin = ContinuousClock.now
    try body()
    return begin.duration(to: .now) / .milliseconds(1)
  }

  private func report(_ name: String, _ times: [Double]) {
    let times = times.sorted()
    let line = [
      name, "\(times.count)", text(times[times.count / 2], 3), text(times[times.count * 99 / 100], 3),
      text(times.last!, 3),
    ]
    print(line.joined(separator: "\t"))
  }

  func run() async throws {
    print("what\tcount\tmedian/ms\tp99/ms\tlongest/ms")
    try measureSeals()
    try await measureOpenings()
  }

  // MARK: Sealed

  /// Beside them an fsync of 4 KiB on the same disk, in turns: what each change that is durable costs at least.
  private func measureSeals() throws {
    var (seals, acknowledged, destroyed, syncs): ([Double], [Double], [Double], [Double]) = ([], [], [], [])
    for round in 0..<rounds {
      let place = url("sealed")
      let container = try SecureContainer.create(at: place, rawKey: key())
      let id = container.store.id
      let writers = try (0..<Self.writerCount).map { try Writer(container.store, number: $0) }
      let group = DispatchGroup()
      for writer in writers {
        group.enter()
        Thread.detachNewThread {
          writer.run(byteCount: Self.writtenByteCount / Self.writerCount, pieces: Self.pieceByteCount)
          group.leave()
        }
      }
      // In the middle, each time at another place.
      usleep(UInt32(100_000 + round * 7_919 % 400_000))
      seals.append(try Self.milliseconds { try container.close(.now, because: "benchmark") })
      // The threads that write are told, and what had begun on the disk has ended: an opening would have waited for it.
      group.wait()
      try SecureContainer.open(at: place, rawKey: key()).close()
      var time = 0.0
      let begin = ContinuousClock.now
      destroyed.append(
        try Self.milliseconds {
          try Container.destroy(at: place.path, id: id) { time = begin.duration(to: .now) / .milliseconds(1) }
        })
      acknowledged.append(time)
      syncs.append(try Self.milliseconds { try synchronizeSmallFile() })
    }
    report("sealed, 64 threads writing", seals)
    report("destroyed: acknowledged", acknowledged)
    report("destroyed: files removed", destroyed)
    report("fsync of 4 KiB", syncs)
  }

  private func synchronizeSmallFile() throws {
    let file = open(directory + "/small", O_WRONLY | O_CREAT, 0o600)
    guard file >= 0 else { throw CocoaError(.fileWriteUnknown) }
    defer { close(file) }
    let bytes = [UInt8](repeating: 1, count: 4096)
    guard pwrite(file, bytes, bytes.count, 0) == bytes.count, fsync(file) == 0 else {
      throw CocoaError(.fileWriteUnknown)
    }
  }

  private final class Writer: Sendable {
    private let file: OpenFile

    init(_ store: Container, number: Int) throws {
      file = try store.openFile("/file\(number)", .readWrite, create: true)
    }

    /// Over and over, until the container is closed.
    func run(byteCount: Int, pieces: Int) {
      let piece = [UInt8](repeating: 7, count: pieces)
      var offset = 0
      while true {
        do { try piece.withUnsafeBytes { try file.write($0, at: UInt64(offset)) } } catch { return }
        offset = (offset + pieces) % byteCount
      }
    }
  }

  // MARK: Open again

  /// With a raw key, until the services are registered again; with many files and, in turns, with none.
  private func measureOpenings() async throws {
    let full = try await SecureContainer.create(at: url("full"), rawKey: key())
    let folderCount = max(1, fileCount / 100_000)
    for i in 0..<folderCount { try full.store.createDirectory("/\(i)") }
    let contents = [UInt8](repeating: 1, count: 16)
    for i in 0..<fileCount {
      try contents.withUnsafeBytes { try full.store.write($0, to: "/\(i % folderCount)/file-\(i).dat") }
    }
    try await full.close()
    try await SecureContainer.create(at: url("empty"), rawKey: key()).close()
    var times: [String: [Double]] = [:]
    for _ in 0..<20 {
      for name in ["full", "empty"] {
        let begin = ContinuousClock.now
        let container = try await SecureContainer.open(at: url(name), rawKey: key())
        let opened = begin.duration(to: .now) / .milliseconds(1)
        var options = AppServices.Options()
        options.broker = configuration(directory).socketPath
        let services = try await AppServices(
          Application(id: ApplicationID("com.example.\(name)"), name: name), container: container,
          options: options)
        try await services.start()
        times[name + ": opened", default: []].append(opened)
        times[name + ": services run", default: []].append(begin.duration(to: .now) / .milliseconds(1))
        await services.hold()
        try container.close(.now, because: "benchmark")
        await services.stop()
        // The broker counts a connection that is replaced; this one is gone.
        try await Task.sleep(for: .milliseconds(1500))
      }
    }
    for (name, times) in times.sorted(by: { $0.key < $1.key }) {
      report("\(name), \(name.hasPrefix("full") ? fileCount : 0) files", times)
    }
  }
}
