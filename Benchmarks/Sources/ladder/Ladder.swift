import ArgumentParser
import Foundation

/// Measures the layers one above the other, so that each rung shows what its layer costs.
@main
struct Ladder: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "ladder",
    abstract: "Measures what each layer of OpenDynamics costs.",
    subcommands: [Climb.self, MemoryOnly.self, MemoryChild.self, CatalogChild.self],
    defaultSubcommand: Climb.self)
}

/// The rungs, in the order in which they run.
enum Rung: String, CaseIterable, ExpressibleByArgument {
  // First, because a child's peak memory is reported no lower than its parent's was when the child began.
  case memory
  case secretstream
  case segments
  case steps
  case container
  case transfer
  case files
  case handles
  case catalog

  func measure(in bench: Bench) throws {
    switch self {
    case .memory: try MemoryRung(bench: bench).measure()
    case .secretstream: try SecretStreamRung(bench: bench).measure()
    case .segments: try SegmentRung(bench: bench).measure()
    case .steps: try StepsRung(bench: bench).measure()
    case .container: try ContainerRung(bench: bench).measure()
    case .transfer: try TransferRung(bench: bench).measure()
    case .files: try FilesRung(bench: bench).measure()
    case .handles: try HandlesRung(bench: bench).measure()
    case .catalog: try CatalogRung(bench: bench).measure()
    }
  }
}

struct BenchOptions: ParsableArguments {
  @Option(help: "Bytes of the large file: 1G, 64M, 65536.")
  var size: ByteCount?

  @Option(help: "Where containers and copies are made. Default: the directory for temporary files.")
  var directory: String?

  @Option(help: "How often each case is measured.")
  var repetitions: Int?

  @Option(help: ArgumentHelp("Write the result here as JSON.", valueName: "file"))
  var json: String?

  @Flag(help: "64 MiB, once: checks that everything runs. The figures say nothing.")
  var short = false

  func validate() throws {
    if let repetitions, repetitions < 1 { throw ValidationError("at least one repetition") }
    if let size, size.value < 1 << 20 { throw ValidationError("--size is at least 1M") }
  }

  /// Runs rungs in a directory of their own, which is removed afterwards, and reports.
  func run(_ rungs: [Rung], size defaultSize: Int, memorySize: Int? = nil) throws {
    let size = self.size?.value ?? (short ? 64 << 20 : defaultSize)
    let workspace = try Workspace(in: directory, waitsForHost: !short)
    defer { workspace.remove() }
    let bench = Bench(
      workspace: workspace, size: size, memorySize: memorySize ?? (short ? size : 4 * size),
      repetitions: repetitions ?? (short ? 1 : 5), fileCount: short ? 1000 : 10_000,
      catalogCounts: short ? [2000] : [100_000, 1_000_000])
    var report = Report(
      machine: Machine(directory: workspace.path), isShort: short, size: size, repetitions: bench.repetitions)
    print(report.machine.description)
    for rung in rungs {
      try rung.measure(in: bench)
      report.add(bench.takeResults(), of: rung)
    }
    report.loadAverageAfter = Machine.loadAverage()
    print(report.closing)
    if let json { try report.encoded.write(to: URL(fileURLWithPath: json)) }
  }
}

struct Climb: ParsableCommand {
  static let configuration = CommandConfiguration(
    abstract: "Climbs the ladder: all rungs, or those named with --only.")

  @OptionGroup var options: BenchOptions

  @Option(
    parsing: .upToNextOption,
    help: "Rungs to measure: \(Rung.allCases.map(\.rawValue).joined(separator: ", ")).")
  var only: [Rung] = []

  @Option(help: "Bytes of the file of the memory rung. Default: four times --size.")
  var memorySize: ByteCount?

  func run() throws {
    try options.run(
      Rung.allCases.filter { only.isEmpty || only.contains($0) }, size: 1 << 30,
      memorySize: memorySize?.value)
  }
}

struct MemoryOnly: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "memory", abstract: "Measures the peak memory of a transfer alone; --size is 4G here.")

  @OptionGroup var options: BenchOptions

  func run() throws { try options.run([.memory], size: 4 << 30, memorySize: options.size?.value) }
}

/// A number of bytes as it is given on the command line.
struct ByteCount: ExpressibleByArgument {
  var value: Int

  init?(argument: String) {
    let units: [Character: Int] = ["K": 10, "M": 20, "G": 30]
    let shift = argument.last.flatMap { units[Character($0.uppercased())] }
    guard let number = Int(shift == nil ? argument : String(argument.dropLast())), number > 0,
      number <= Int.max >> (shift ?? 0)
    else { return nil }
    value = number << (shift ?? 0)
  }
}

/// What every rung gets: where, how much, how often; and takes what it found.
final class Bench {
  let workspace: Workspace
  let size: Int
  let memorySize: Int
  let repetitions: Int
  /// Small files of the rung `files`.
  let fileCount: Int
  /// Files in the containers of the rung `catalog`.
  let catalogCounts: [Int]
  private var results = RungResults()

  init(
    workspace: Workspace, size: Int, memorySize: Int, repetitions: Int, fileCount: Int,
    catalogCounts: [Int]
  ) {
    self.fileCount = fileCount
    self.catalogCounts = catalogCounts
    self.workspace = workspace
    self.size = size
    self.memorySize = memorySize
    self.repetitions = repetitions
  }

  /// Bytes that a repetition of a rung without files puts through: a quarter of the size, in whole blocks.
  func byteCountInMemory(block: Int) -> Int { max(1, size / 4 / block) * block }

  func add(_ series: [Series]) { results.series += series }
  func add(_ ratio: Ratio) { results.ratios.append(ratio) }
  func add(_ space: SpaceUse) { results.space.append(space) }
  func add(_ peaks: [MemoryPeak]) { results.peaks += peaks }

  func takeResults() -> RungResults {
    defer { results = RungResults() }
    return results
  }
}
