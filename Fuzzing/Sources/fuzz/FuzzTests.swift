import Foundation
import TestSupport
import Testing

/// Feeds every target with its corpus, and with inputs made from it at random. CI runs these tests, in the build that it has anyway;
/// `Fuzzing/run` lets libFuzzer look for inputs, which needs a build of its own.
struct FuzzTests {
  /// Inputs made from the corpus of a target.
  static let inputCount = TestEffort.count(30, long: 300, all: 30_000)

  @Test(arguments: Target.all) func acceptsItsSeeds(_ target: Target) throws {
    let finding = try Finding(target, "seed")
    for seed in try target.seeds() {
      let isAccepted = try finding.keep(seed.bytes, while: target.accepts)
      #expect(isAccepted || !seed.isAccepted, "\(target.name) refuses its seed \(seed.name)")
    }
    try finding.remove()
  }

  @Test(arguments: Target.all) func survivesTheCorpusAndInputsMadeFromIt(_ target: Target) throws {
    let corpus = try Corpus(target)
    try #require(!corpus.inputs.isEmpty)
    let finding = try Finding(target, "input")
    for input in corpus.inputs { _ = try finding.keep(input, while: target.accepts) }
    let seed = UInt64.random(in: 0...UInt64.max)
    print("\(target.name): inputs of seed \(seed)")
    var random = SplitMix64(seed: seed)
    for _ in 0..<Self.inputCount {
      var input = corpus.anyInput(using: &random)
      for _ in 0...Int.random(in: 0..<5, using: &random) { change(&input, with: corpus, using: &random) }
      _ = try finding.keep(Array(input.prefix(target.inputByteCountMax)), while: target.accepts)
    }
    try finding.remove()
  }

  /// One change of the kinds that libFuzzer makes.
  private func change(_ input: inout [UInt8], with corpus: Corpus, using random: inout SplitMix64) {
    let place = Int.random(in: 0...input.count, using: &random)
    let count = Int.random(in: 1...32, using: &random)
    let range = place..<min(place + count, input.count)
    switch Int.random(in: 0..<6, using: &random) {
    case 0:
      for i in range.prefix(4) { input[i] ^= 1 << UInt8.random(in: 0..<8, using: &random) }
    case 1:
      for i in range { input[i] = UInt8.random(in: 0...255, using: &random) }
    case 2:
      input.removeSubrange(range)
    case 3:
      input.insert(contentsOf: input[range], at: place)
    case 4:
      let word = corpus.words[Int.random(in: 0..<corpus.words.count, using: &random)]
      input.replaceSubrange(place..<min(place + word.count, input.count), with: word)
    default:
      input.replaceSubrange(place..., with: corpus.anyInput(using: &random).dropFirst(place))
    }
  }
}

/// `Fuzzing`, the package of the targets.
private let package = URL(filePath: #filePath).deletingLastPathComponent().appending(path: "../..")

/// The inputs of a target that were committed.
private struct Corpus {
  let inputs: [[UInt8]]
  /// The dictionary of libFuzzer: what formats and protocols treat in a way of its own.
  let words: [[UInt8]]

  init(_ target: Target) throws {
    let folder = package.appending(path: "Corpus/\(target.name)")
    inputs = try FileManager.default.contentsOfDirectory(at: folder, includingPropertiesForKeys: nil)
      .sorted { $0.lastPathComponent < $1.lastPathComponent }
      .map { [UInt8](try Data(contentsOf: $0)) }
    words = try String(contentsOf: package.appending(path: "dictionary"), encoding: .utf8)
      .split(separator: "\n").filter { !$0.hasPrefix("#") }
      .map(Self.word)
  }

  func anyInput(using random: inout SplitMix64) -> [UInt8] {
    inputs[Int.random(in: 0..<inputs.count, using: &random)]
  }

  /// `"text"` or `name="text"`, in which `\xHH` is a byte.
  private static func word(_ line: Substring) throws -> [UInt8] {
    let quoted = try #require(line.firstIndex(of: "\""))
    var rest = line[quoted...].dropFirst().dropLast()
    var bytes: [UInt8] = []
    while let character = rest.first {
      if rest.hasPrefix("\\x") {
        bytes.append(try #require(UInt8(rest.dropFirst(2).prefix(2), radix: 16)))
        rest = rest.dropFirst(4)
      } else {
        bytes += Array(String(character).utf8)
        rest = rest.dropFirst()
      }
    }
    return bytes
  }
}

/// The input that a target is given at the moment, in `Fuzzing/.build/findings`: a claim that does not hold ends the process.
private struct Finding {
  private let file: URL

  init(_ target: Target, _ kind: String) throws {
    let folder = package.appending(path: ".build/findings")
    try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
    file = folder.appending(path: "\(target.name)-\(kind)")
  }

  func keep(_ input: [UInt8], while accepts: ([UInt8]) throws -> Bool) throws -> Bool {
    try Data(input).write(to: file)
    return try accepts(input)
  }

  func remove() throws { try FileManager.default.removeItem(at: file) }
}
