import ContainerStore
import Foundation

/// The main job against `cp`: a file from one container into another's inbox, and the same plaintext from file to file.
struct TransferRung {
  let bench: Bench

  private static let file = "/large"

  func measure() throws {
    let workspace = bench.workspace
    try workspace.makeIncompressibleFile("plain", byteCount: bench.size)
    let source = try workspace.makeContainer("source", .grouped)
    defer { try? source.close() }
    try source.importItem(at: workspace.place("plain"), to: Self.file)
    try source.synchronize()
    // Making the receiver is not part of the transfer, and has a line of its own.
    var making = Series("making a durable receiver (not counted below)", byteCount: nil)
    let cases = [
      Case("send, no barrier", byteCount: bench.size) { try sendOnce(source, .none).sending },
      Case("cp, no fsync", byteCount: bench.size) { try copyOnce(durably: false) },
      Case("send, until durable", byteCount: bench.size) {
        let times = try sendOnce(source, .grouped)
        making.seconds.append(times.making)
        return times.sending
      },
      Case("cp && sync, until durable", byteCount: bench.size) { try copyOnce(durably: true) },
    ]
    let series = try alternating(cases, repetitions: bench.repetitions)
    bench.add(series + [making])
    bench.add(Ratio("send to cp, neither synced", subject: series[0], baseline: series[1]))
    bench.add(Ratio("send to cp, both durable", subject: series[2], baseline: series[3]))
    try source.close()
    for name in ["plain", "source"] { try workspace.remove(name) }
  }

  /// A durable `send` returns after the barrier; with durability `none` nothing waits for the disk.
  private func sendOnce(
    _ source: Container, _ durability: Container.Durability
  ) throws -> (making: Double, sending: Double) {
    let workspace = bench.workspace
    var receiver: Container?
    let making = try seconds { receiver = try workspace.makeContainer("receiver", durability) }
    guard let receiver else { preconditionFailure("a container was made") }
    try workspace.prepare(source: "source", byteCount: bench.size + bench.size / 8)
    let sending = try seconds { _ = try source.send([Self.file], to: receiver, sender: "ladder") }
    try receiver.close()
    try workspace.remove("receiver")
    return (making, sending)
  }

  private func copyOnce(durably: Bool) throws -> Double {
    let workspace = bench.workspace
    try workspace.prepare(source: "plain", byteCount: bench.size + bench.size / 8)
    // --reflink=never also keeps cp from copy_file_range: it reads and writes, as the transfer has to.
    let options = ["--reflink=never", "--sparse=never", workspace.place("plain"), workspace.place("copy")]
    let time = try seconds {
      try Child.run("cp", options)
      if durably { try Child.run("sync", [workspace.place("copy")]) }
    }
    try workspace.remove("copy")
    return time
  }
}
