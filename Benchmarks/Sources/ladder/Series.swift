import EncryptedFile

/// The times of one case, in the order in which they were taken.
struct Series: Encodable {
  var name: String
  /// Bytes that went through each time; nil where a rate would mean nothing.
  var byteCount: Int?
  var seconds: [Double] = []

  init(_ name: String, byteCount: Int?) {
    self.name = name
    self.byteCount = byteCount
  }

  var median: Double { seconds.median }
  var gibibytesPerSecond: Double? { byteCount.map { Double($0) / median / Double(1 << 30) } }
}

/// How many times as fast one case is as another that was measured in turns with it.
struct Ratio: Encodable {
  var name: String
  /// Of the ratios of neighbours in time, so that a slow moment of the machine meets both sides.
  var median: Double
  var minimum: Double
  var maximum: Double

  /// Above 1: `subject` took less time.
  init(_ name: String, subject: Series, baseline: Series) {
    let ratios = zip(baseline.seconds, subject.seconds).map { $0 / $1 }
    self.name = name
    median = ratios.median
    minimum = ratios.min() ?? .nan
    maximum = ratios.max() ?? .nan
  }
}

extension [Double] {
  var median: Double {
    guard !isEmpty else { return .nan }
    let sorted = self.sorted()
    return (sorted[(count - 1) / 2] + sorted[count / 2]) / 2
  }
}

/// A case of a rung. `once` does the work and returns how many seconds the part took that counts.
struct Case {
  var name: String
  var byteCount: Int?
  var once: () throws -> Double

  init(_ name: String, byteCount: Int?, once: @escaping () throws -> Double) {
    self.name = name
    self.byteCount = byteCount
    self.once = once
  }
}

/// Measures the cases in turns, A B A B …, so that a slow moment of the machine meets all of them.
func alternating(_ cases: [Case], repetitions: Int) throws -> [Series] {
  var series = cases.map { Series($0.name, byteCount: $0.byteCount) }
  for _ in 0..<repetitions {
    for (i, item) in cases.enumerated() { series[i].seconds.append(try item.once()) }
  }
  return series
}

func seconds(_ body: () throws -> Void) rethrows -> Double {
  let begin = Clock.monotonicNanoseconds()
  try body()
  return Double(Clock.monotonicNanoseconds() - begin) / 1e9
}
