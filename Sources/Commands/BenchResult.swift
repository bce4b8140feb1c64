import ContainerStore

/// What `dynamics bench` prints.
struct BenchResult: Encodable {
  enum Limit: String, Encodable {
    case disk, memory, otherPrograms, processor
  }

  struct Line: Encodable {
    var work: BenchWork
    /// Of every repetition, in their order.
    var seconds: [Double] = []
    /// User and system time of the same repetitions.
    var processorSeconds: [Double] = []
  }

  var cipher: String
  var cipherVersion: String
  var whyThisCipher: String
  var threadCount: Int
  /// Of the system, over the last minute before the first line.
  var loadAverage: Double
  /// Of the file, and of what the cipher and the copy in memory work on.
  var byteCount: Int
  var lines: [Line] = []
  /// What holds up a transfer from container to container.
  var limit: Limit { limitAndReason.limit }

  private enum CodingKeys: String, CodingKey {
    case cipher, cipherVersion, whyThisCipher, threadCount, loadAverage, byteCount, lines, limit
  }

  func encode(to encoder: any Encoder) throws {
    var container = encoder.container(keyedBy: CodingKeys.self)
    try container.encode(cipher, forKey: .cipher)
    try container.encode(cipherVersion, forKey: .cipherVersion)
    try container.encode(whyThisCipher, forKey: .whyThisCipher)
    try container.encode(threadCount, forKey: .threadCount)
    try container.encode(loadAverage, forKey: .loadAverage)
    try container.encode(byteCount, forKey: .byteCount)
    try container.encode(lines, forKey: .lines)
    try container.encode(limit, forKey: .limit)
  }
}

/// A line of the table; the value is its name in JSON.
enum BenchWork: String, CaseIterable, Encodable {
  case memoryCopy, cipherOneThread, cipherAllThreads
  case cp, send, cpDurable, put, get, sendDurable

  func title(threadCount: Int) -> String {
    switch self {
    case .memoryCopy: "copy in memory"
    case .cipherOneThread: "cipher, 1 thread"
    case .cipherAllThreads: "cipher, \(threadCount) threads"
    case .cp: "cp"
    case .send: "container to container"
    case .cpDurable: "cp, durable"
    case .put: "put, durable"
    case .get: "get, durable"
    case .sendDurable: "container to container, durable"
    }
  }
}

extension BenchResult {
  private static let barWidth = 24

  var text: String {
    let rows = lines.map { line -> [String] in
      let speeds = line.seconds.map { Double(byteCount) / $0 }
      return [
        line.work.title(threadCount: threadCount), Quantity.rate(speed(line)),
        "\(Quantity.rate(speeds.min() ?? 0)) – \(Quantity.rate(speeds.max() ?? 0))",
      ]
    }
    let widths = (0..<3).map { column in rows.map { $0[column].count }.max() ?? 0 }
    // The cipher and memory are many times as fast as any disk: each group has a scale of its own.
    let fastest = lines.map { line in
      lines.filter { $0.work.isInMemory == line.work.isInMemory }.map(speed).max() ?? 1
    }
    var text =
      "\(Quantity.bytes(UInt64(byteCount))); cipher: \(cipher) (\(cipherVersion)), \(whyThisCipher)\n"
    for (i, row) in rows.enumerated() {
      if i == 0 || lines[i].work.isInMemory != lines[i - 1].work.isInMemory { text += "\n" }
      let bar = String(
        repeating: "█", count: max(1, Int((speed(lines[i]) / fastest[i] * Double(Self.barWidth)).rounded())))
      for (cell, width) in zip(row, widths) {
        text += cell + String(repeating: " ", count: width + 2 - cell.count)
      }
      text += bar + "\n"
    }
    return text + "\n" + limitAndReason.reason + "\n"
  }

  private func speed(_ line: Line) -> Double { Double(byteCount) / Self.median(line.seconds) }

  private var limitAndReason: (limit: Limit, reason: String) {
    let (durable, free) = (line(.sendDurable), line(.send))
    let share = Self.median(free.seconds) / Self.median(durable.seconds)
    let busyMax = min(threadCount, processorCount())
    let busy =
      free.processorSeconds.reduce(0, +) / (free.seconds.reduce(0, +) * Double(busyMax))
    if share < 0.8 {
      return (
        .disk,
        "The disk sets the speed from container to container: without waiting for it, it takes \(percent(share)) of the time."
      )
    }
    if busy > 0.8 {
      return (
        .processor,
        "The processor sets the speed from container to container: it is busy \(percent(busy)) of the time."
      )
    }
    if loadAverage > Double(threadCount) / 2 {
      return (
        .otherPrograms,
        "Other programs keep the processor busy (load average \(Quantity.decimal(loadAverage, digits: 1))): measure again when they have ended."
      )
    }
    return (
      .memory,
      "Memory sets the speed from container to container: the processor is busy \(percent(busy)) of the time, and waiting for the disk adds little."
    )
  }

  private func line(_ work: BenchWork) -> Line {
    lines.first { $0.work == work } ?? Line(work: work, seconds: [1], processorSeconds: [1])
  }

  private func percent(_ share: Double) -> String { "\(Int((min(1, share) * 100).rounded())) %" }

  static func median(_ values: [Double]) -> Double {
    let sorted = values.sorted()
    guard !sorted.isEmpty else { return 0 }
    return (sorted[(sorted.count - 1) / 2] + sorted[sorted.count / 2]) / 2
  }
}

extension BenchWork {
  var isInMemory: Bool {
    switch self {
    case .memoryCopy, .cipherOneThread, .cipherAllThreads: true
    default: false
    }
  }
}
