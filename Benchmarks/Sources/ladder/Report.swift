import Foundation

/// What one rung found.
struct RungResults: Encodable {
  var series: [Series] = []
  var ratios: [Ratio] = []
  var peaks: [MemoryPeak] = []
  var space: [SpaceUse] = []
}

/// Everything of one run: printed rung by rung as it comes, and written as JSON at the end.
struct Report: Encodable {
  var machine: Machine
  var isShort: Bool
  var size: Int
  var repetitions: Int
  var rungs: [String: RungResults] = [:]
  var loadAverageAfter = ""

  init(machine: Machine, isShort: Bool, size: Int, repetitions: Int) {
    self.machine = machine
    self.isShort = isShort
    self.size = size
    self.repetitions = repetitions
  }

  mutating func add(_ results: RungResults, of rung: Rung) {
    rungs[rung.rawValue] = results
    print("\n\(rung.rawValue)\n" + Self.table(results))
  }

  var closing: String {
    let note =
      isShort ? "A short run: everything ran; the figures say nothing." : "Medians of \(repetitions)."
    return "\n\(note) Load average \(machine.loadAverage) before, \(loadAverageAfter) after."
  }

  var encoded: Data {
    get throws {
      let encoder = JSONEncoder()
      encoder.outputFormatting = [.prettyPrinted, .sortedKeys]
      return try encoder.encode(self)
    }
  }

  private static func table(_ results: RungResults) -> String {
    var rows: [[String]] = []
    if !results.series.isEmpty {
      rows.append(["case", "median s", "min s", "max s", "GiB/s"])
      rows += results.series.map { series in
        [
          series.name, series.median.formatted(decimals: 4),
          (series.seconds.min() ?? .nan).formatted(decimals: 4),
          (series.seconds.max() ?? .nan).formatted(decimals: 4),
          series.gibibytesPerSecond?.formatted(decimals: 2) ?? "",
        ]
      }
    }
    if !results.ratios.isEmpty {
      rows.append(["ratio of speeds", "median", "min", "max", ""])
      rows += results.ratios.map { ratio in
        [ratio.name] + [ratio.median, ratio.minimum, ratio.maximum].map { $0.formatted(decimals: 2) } + [""]
      }
    }
    if !results.peaks.isEmpty {
      rows.append(["resident memory", "median MiB", "min MiB", "max MiB", ""])
      rows += results.peaks.map { peak in
        let mebibytes = peak.peakByteCounts.map { Double($0) / Double(1 << 20) }
        return [
          peak.name, mebibytes.median.formatted(decimals: 1),
          (mebibytes.min() ?? .nan).formatted(decimals: 1), (mebibytes.max() ?? .nan).formatted(decimals: 1),
          "",
        ]
      }
    }
    if !results.space.isEmpty {
      rows.append(["space on disk", "ratio", "MiB", "", ""])
      rows += results.space.map { use in
        [
          use.name, use.ratio.formatted(decimals: 3),
          (Double(use.byteCount) / Double(1 << 20)).formatted(decimals: 1), "", "",
        ]
      }
    }
    return rows.map { row in
      let name = row[0].padding(toLength: max(58, row[0].count), withPad: " ", startingAt: 0)
      let values = row.dropFirst().map { String(repeating: " ", count: max(0, 11 - $0.count)) + $0 }
      return name + values.joined()
    }.joined(separator: "\n")
  }
}
