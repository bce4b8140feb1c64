import ContainerStore
import Foundation
import SecureFiles
import SodiumPrimitives

/// One large file read and written in order through handles and streams, against the transfer from container to container and its two
/// halves (the bulk calls), on all threads, and `Container.read` on one. No barrier.
struct HandlesRung {
  let bench: Bench

  private static let file = "/large"
  private static let pieces = [("1 MiB", 1 << 20), ("64 KiB", 64 << 10)]

  func measure() throws {
    let workspace = bench.workspace
    try workspace.makeIncompressibleFile("plain", byteCount: bench.size)
    let key = { try SecretBytes(count: 32) }
    var options = Container.Options()
    options.durability = .none
    let source = try SecureContainer.create(
      at: URL(fileURLWithPath: workspace.place("handles")), rawKey: key(), options: options)
    try source.store.importItem(at: workspace.place("plain"), to: Self.file)
    try source.synchronize()

    func target(_ body: (SecureContainer) throws -> Void) throws -> Double {
      let target = try SecureContainer.create(
        at: URL(fileURLWithPath: workspace.place("target")), rawKey: key(), options: options)
      try workspace.prepare(source: "plain", byteCount: bench.size + bench.size / 8)
      let time = try seconds { try body(target) }
      try target.close()
      try workspace.remove("target")
      return time
    }
    func reading(_ body: () throws -> Int) throws -> Double {
      try workspace.prepare(source: "handles", byteCount: 1 << 20)
      var count = 0
      let time = try seconds { count = try body() }
      precondition(count == bench.size, "the whole file was read")
      return time
    }

    let send = Case("send, all threads", byteCount: bench.size) {
      try target {
        _ = try source.store.send([Self.file], to: $0.store, sender: "ladder")
      }
    }
    var reads = [
      send,
      Case("exportItem, all threads", byteCount: bench.size) {
        try workspace.prepare(source: "handles", byteCount: bench.size + bench.size / 8)
        let time = try seconds {
          try source.store.exportItem(Self.file, to: workspace.place("exported"))
        }
        try workspace.remove("exported")
        return time
      },
      Case("Container.read, one thread", byteCount: bench.size) {
        try reading {
          var count = 0
          try source.store.read(Self.file) { count += $0.count }
          return count
        }
      },
    ]
    var writes = [
      send,
      Case("importItem, all threads", byteCount: bench.size) {
        try target { try $0.store.importItem(at: workspace.place("plain"), to: Self.file) }
      },
    ]
    for (name, piece) in Self.pieces {
      let buffer = Buffer(byteCount: piece)
      buffer.fillIncompressibly()
      let bytes = UnsafeMutablePointer<UInt8>(
        buffer.bytes.baseAddress!.assumingMemoryBound(to: UInt8.self))
      let pieces = bench.size / piece
      reads.append(
        Case("handle, reads of \(name)", byteCount: bench.size) {
          try reading {
            guard let handle = source.files.fileHandle(forReadingAtPath: Self.file) else { return 0 }
            var count = 0
            while let data = try handle.read(upToCount: piece) { count += data.count }
            return count
          }
        })
      reads.append(
        Case("stream, reads of \(name)", byteCount: bench.size) {
          try reading {
            let stream = source.files.inputStream(forPath: Self.file)
            stream.open()
            var count = 0
            while true {
              let read = stream.read(bytes, maxLength: piece)
              guard read > 0 else { return count }
              count += read
            }
          }
        })
      writes.append(
        Case("handle, writes of \(name)", byteCount: pieces * piece) {
          try target {
            $0.files.createFile(atPath: Self.file, contents: nil)
            guard let handle = $0.files.fileHandle(forWritingAtPath: Self.file) else { return }
            for _ in 0..<pieces { try handle.write(contentsOf: UnsafeRawBufferPointer(buffer.bytes)) }
            try handle.close()
          }
        })
      writes.append(
        Case("stream, writes of \(name)", byteCount: pieces * piece) {
          try target {
            let stream = $0.files.outputStream(forPath: Self.file, append: false)
            stream.open()
            for _ in 0..<pieces {
              precondition(stream.write(bytes, maxLength: piece) == piece, "the stream takes everything")
            }
            stream.close()
          }
        })
    }
    for (cases, baselines) in [(reads, 3), (writes, 2)] {
      let series = try alternating(cases, repetitions: bench.repetitions)
      bench.add(series)
      for subject in series.dropFirst(baselines) {
        for baseline in series.prefix(baselines) {
          bench.add(Ratio("\(subject.name) / \(baseline.name)", subject: subject, baseline: baseline))
        }
      }
    }
    try source.close()
    for name in ["plain", "handles"] { try workspace.remove(name) }
  }
}
