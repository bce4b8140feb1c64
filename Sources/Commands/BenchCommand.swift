import ArgumentParser
import ContainerStore

struct BenchCommand: ParsableCommand, ReportingCommand {
  static let configuration = CommandConfiguration(
    commandName: "bench",
    abstract: "Measures the cipher, and containers beside cp, in a directory of yours.",
    discussion: """
      Makes a folder in DIR, measures for about two minutes, and removes the folder. A large --size on a slow disk takes \
      longer, because each line is measured at least once. Every line is a median, with the slowest and the fastest behind \
      it; lines take turns, so that a slow moment of the machine meets all of them. It needs four times --size of free \
      space. The time of a line that says "durable" ends when the data has reached the disk.
      """)

  @Argument(help: "A directory on the disk to measure.", completion: .directory)
  var dir: String = "."

  @Option(help: ArgumentHelp("MiB of the file that is copied.", valueName: "mib"))
  var size: Int = 256

  @Option(
    help: ArgumentHelp(
      "How often each line is measured; up to 5 times in two minutes by default.", valueName: "n"))
  var repetitions: Int?

  @OptionGroup var bulk: BulkOptions

  @Flag(help: "Prints one JSON object.")
  var json = false

  var reportsJSON: Bool { json }

  func validate() throws {
    guard (1...1 << 20).contains(size) else { throw ValidationError("--size takes 1 to 1048576.") }
    guard (1...1000).contains(repetitions ?? 1) else {
      throw ValidationError("--repetitions takes 1 to 1000.")
    }
  }

  func run() throws {
    let workshop = try BenchWorkshop(in: dir, byteCount: size << 20, options: bulk.containerOptions())
    defer { workshop.remove() }
    let result = try bulk.withProgressBar("bench") { bar in
      try workshop.measure(repetitions: repetitions) { bar?.show($0) }
    }
    try StandardOutput.write(json ? JSONText.of(result) : result.text)
  }
}
