package import CoreMetrics
internal import Foundation
internal import Locks
internal import Synchronization

/// Keeps metrics in memory, and writes them as Prometheus reads them (text format 0.0.4). Recorders that
/// aggregate are histograms of seconds.
package final class PrometheusMetrics: MetricsFactory {
  private let series = Guarded<[Key: any Series]>([:])

  private struct Key: Hashable, Sendable {
    let name: String
    /// As they stand between the braces.
    let labels: String

    init(_ label: String, _ dimensions: [(String, String)]) {
      name = label
      labels = dimensions.map { "\($0.0)=\"\($0.1)\"" }.joined(separator: ",")
    }
  }

  package init() {}

  package func makeCounter(label: String, dimensions: [(String, String)]) -> any CounterHandler {
    get(label, dimensions) { Count() }
  }

  package func makeRecorder(
    label: String, dimensions: [(String, String)], aggregate: Bool
  ) -> any RecorderHandler {
    if aggregate { get(label, dimensions) { Histogram() } } else { get(label, dimensions) { Value() } }
  }

  package func makeTimer(label: String, dimensions: [(String, String)]) -> any TimerHandler {
    get(label, dimensions) { Histogram() }
  }

  package func destroyCounter(_ handler: any CounterHandler) {}
  package func destroyRecorder(_ handler: any RecorderHandler) {}
  package func destroyTimer(_ handler: any TimerHandler) {}

  private func get<S: Series>(_ label: String, _ dimensions: [(String, String)], _ make: () -> S) -> S {
    series.withLock { series in
      let key = Key(label, dimensions)
      if let found = series[key] as? S { return found }
      let new = make()
      series[key] = new
      return new
    }
  }

  /// All metrics.
  package func text() -> String {
    let series = series.withLock { $0 }
    var text = ""
    var last = ""
    for (key, value) in series.sorted(by: { ($0.key.name, $0.key.labels) < ($1.key.name, $1.key.labels) }) {
      if key.name != last { text += "# TYPE \(key.name) \(value.type)\n" }
      last = key.name
      text += value.lines(key.name, key.labels)
    }
    return text
  }
}

private protocol Series: AnyObject, Sendable {
  var type: String { get }
  func lines(_ name: String, _ labels: String) -> String
}

private func line(_ name: String, _ labels: String, _ value: String) -> String {
  labels.isEmpty ? "\(name) \(value)\n" : "\(name){\(labels)} \(value)\n"
}

private final class Count: CounterHandler, Series {
  private let value = Atomic<Int64>(0)

  let type = "counter"

  func increment(by amount: Int64) { value.add(amount, ordering: .relaxed) }
  func reset() { value.store(0, ordering: .relaxed) }
  func lines(_ name: String, _ labels: String) -> String {
    line(name, labels, "\(value.load(ordering: .relaxed))")
  }
}

private final class Value: RecorderHandler, Series {
  private let value = Guarded(0.0)

  let type = "gauge"

  func record(_ value: Int64) { record(Double(value)) }
  func record(_ value: Double) { self.value.withLock { $0 = value } }
  func lines(_ name: String, _ labels: String) -> String {
    line(name, labels, value.withLock { $0.formatted })
  }
}

private final class Histogram: RecorderHandler, TimerHandler, Series {
  private struct State {
    var counts = [Int](repeating: 0, count: Histogram.bounds.count)
    var count = 0
    var sum = 0.0
  }

  private static let bounds = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10]
  private let state = Guarded(State())

  let type = "histogram"

  func record(_ value: Int64) { record(Double(value)) }
  func recordNanoseconds(_ duration: Int64) { record(Double(duration) / 1e9) }
  func record(_ value: Double) {
    state.withLock { state in
      for (index, bound) in Self.bounds.enumerated() where value <= bound { state.counts[index] += 1 }
      state.count += 1
      state.sum += value
    }
  }

  func lines(_ name: String, _ labels: String) -> String {
    state.withLock { state in
      let prefix = labels.isEmpty ? "" : labels + ","
      var text = ""
      for (bound, count) in zip(Self.bounds, state.counts) {
        text += line("\(name)_bucket", "\(prefix)le=\"\(bound.formatted)\"", "\(count)")
      }
      text += line("\(name)_bucket", "\(prefix)le=\"+Inf\"", "\(state.count)")
      text += line("\(name)_sum", labels, state.sum.formatted)
      return text + line("\(name)_count", labels, "\(state.count)")
    }
  }
}

extension Double {
  fileprivate var formatted: String { self == rounded() ? "\(Int64(self))" : "\(self)" }
}
