import Foundation
import Testing

@testable import Commands

struct BenchTests {
  private struct Result: Decodable {
    struct Line: Decodable {
      var work: String
      var seconds: [Double]
      var processorSeconds: [Double]
    }

    var cipher: String
    var whyThisCipher: String
    var threadCount: Int
    var byteCount: Int
    var lines: [Line]
    var limit: String
  }

  @Test func measuresEveryLineAndRemovesItsFolder() throws {
    let folder = try TemporaryFolder()
    let place = try folder.makeFolder("place")
    let outcome = try folder.runBare(
      "bench", place, "--size", "1", "--repetitions", "2", "--threads", "2", "--json")
    #expect(outcome.status == 0, "\(outcome.errors)")
    let result = try JSONDecoder().decode(Result.self, from: Data(outcome.output))
    #expect(result.lines.map(\.work) == BenchWork.allCases.map(\.rawValue))
    for line in result.lines {
      #expect(line.seconds.count == 2 && line.processorSeconds.count == 2)
      #expect(line.seconds.allSatisfy { $0 > 0 })
    }
    #expect(result.byteCount == 1 << 20 && result.threadCount == 2)
    #expect(try fileNames(in: place).isEmpty)
  }

  @Test func printsATableAndWhichCipherRunsAndWhy() throws {
    let folder = try TemporaryFolder()
    let outcome = try folder.runBare(
      "bench", folder.path("."), "--size", "1", "--repetitions", "1", "--threads", "1", "--cipher",
      "libsodium")
    #expect(outcome.status == 0, "\(outcome.errors)")
    let lines = outcome.text.split(separator: "\n", omittingEmptySubsequences: false)
    #expect(lines[0].hasPrefix("1.0 MiB; cipher: libsodium (1."))
    #expect(lines[0].contains(", because "))
    // One thread is all threads there are: the line says the same once.
    for work in BenchWork.allCases where work != .cipherAllThreads {
      let line = lines.first { $0.hasPrefix(work.title(threadCount: 1) + "  ") }
      #expect(line?.contains("iB/s") == true && line?.hasSuffix("█") == true, "\(work)")
    }
    #expect(!outcome.text.contains("threads"))
  }

  @Test(arguments: [
    ["--size", "0"], ["--size", "1048577"], ["--repetitions", "0"], ["--threads", "0"],
    ["--cipher", "rot13"],
  ])
  func refusesWhatCannotBeMeasured(options: [String]) throws {
    let folder = try TemporaryFolder()
    let outcome = try DynamicsProcess((["bench"] + options).map { Array($0.utf8) }, in: folder).finish()
    #expect(outcome.status == 64)
  }

  @Test func saysThatThereIsNoSuchDirectory() throws {
    let folder = try TemporaryFolder()
    let outcome = try folder.runBare("bench", folder.path("nowhere"))
    #expect(outcome.status == 5)
    #expect(outcome.errors.hasPrefix("dynamics: no such file or directory: "))
  }

  @Test func leavesNothingBehindWhenItIsEnded() throws {
    let folder = try TemporaryFolder()
    let place = try folder.makeFolder("place")
    let bench = try DynamicsProcess(
      ["bench", place, "--size", "64", "--repetitions", "1000", "--progress"].map { Array($0.utf8) },
      in: folder)
    try bench.waitForProgress()
    bench.signal(SIGINT)
    #expect(try bench.finish().status == 130)
    #expect(try fileNames(in: place).isEmpty)
  }

  @Test(
    arguments: [
      ([1, 1], [2, 2], 2, 0, .disk), ([1, 3], [2, 2.1], 3.6, 0, .processor), ([1], [1.1], 0.5, 0.9, .memory),
      ([1], [1.1], 0.5, 1.1, .otherPrograms), ([1], [1.1], 1.7, 9, .processor),
    ] as [([Double], [Double], Double, Double, BenchResult.Limit)])
  func namesWhatSetsTheSpeed(
    free: [Double], durable: [Double], processor: Double, load: Double, limit: BenchResult.Limit
  ) {
    let result = BenchResult(
      cipher: "", cipherVersion: "", whyThisCipher: "", threadCount: 2, loadAverage: load, byteCount: 1,
      lines: [
        BenchResult.Line(
          work: .send, seconds: free, processorSeconds: free.map { _ in processor }),
        BenchResult.Line(
          work: .sendDurable, seconds: durable, processorSeconds: durable.map { _ in 0 }),
      ])
    #expect(result.limit == limit)
  }

  @Test(arguments: [([3, 1, 2], 2), ([4, 1], 2.5), ([], 0)] as [([Double], Double)])
  func takesTheMedian(values: [Double], median: Double) { #expect(BenchResult.median(values) == median) }
}
