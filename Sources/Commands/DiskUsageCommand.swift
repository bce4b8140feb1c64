import ArgumentParser
import ContainerStore

struct DiskUsageCommand: ParsableCommand, ReportingCommand {
  static let configuration = CommandConfiguration(
    commandName: "du", abstract: "Sums up the sizes of files, folder by folder.",
    usage: "dynamics du [OPTIONS] DIR [PATH…]\ndynamics du [OPTIONS] CONTAINER:/path…",
    discussion: """
      A line for each folder, contents first: bytes of contents, a tab, the path. A file with several names counts once.
      """)

  @Argument(help: "The container, or CONTAINER:/path.", completion: .directory)
  var dir: String

  @Argument(help: "Folders or files in the container. (default: /)")
  var path: [String] = []

  @OptionGroup var credential: CredentialOptions

  @Flag(name: [.customShort("s"), .long], help: "Prints only the sum of each PATH.")
  var summarize = false

  @Flag(name: .shortAndLong, help: "Prints files, too.")
  var all = false

  @Flag(name: [.customShort("c"), .long], help: "Prints the sum of everything at the end.")
  var total = false

  @Flag(name: [.customShort("h"), .long], help: "Prints sizes as 1.5KiB.")
  var human = false

  @Flag(name: [.customShort("k")], help: "Prints sizes in KiB, rounded up.")
  var inKiB = false

  @Option(
    name: [.customShort("d"), .customLong("max-depth")],
    help: ArgumentHelp("Prints only so many levels below PATH.", valueName: "n"))
  var depthMax: Int?

  @Flag(help: "Prints one JSON array.")
  var json = false

  @Flag(
    name: [.customShort("0"), .customLong("null")],
    help: "Prints exact paths, each line with a NUL behind it.")
  var null = false

  var reportsJSON: Bool { json }

  func validate() throws {
    if json, human || inKiB || null || total {
      throw ValidationError("--json has bytes and exact paths; leave out --human, -k, -c and --null.")
    }
    if human, inKiB { throw ValidationError("Give --human or -k, not both.") }
    if summarize, all { throw ValidationError("Give -s or -a, not both.") }
    if summarize, depthMax ?? 0 != 0 { throw ValidationError("Give -s or --max-depth, not both.") }
    if let depthMax, depthMax < 0 { throw ValidationError("--max-depth takes 0 or more.") }
    _ = try operands()
  }

  private func operands() throws -> ContainerOperands { try ContainerOperands(dir, path) }

  func run() throws {
    Interruption.shared.endAtOnce()
    let operands = try operands()
    let secret = try credential.secret(for: operands.directory)
    let paths = operands.paths.isEmpty ? ["/"] : operands.paths
    let damage = DamageReport(asJSON: json)
    let found = try withContainer(
      at: operands.directory, secret, mode: .readOnly, findings: json ? .json : .text
    ) { container in
      // A file that was met below one path does not count again below the next, as in du(1).
      var counted: Set<UInt64> = []
      return try FoundPaths(paths, asJSON: json) {
        try sums(at: $0, in: container, counted: &counted, damage: damage)
      }
    }
    try found.print { found in
      let sums = found.flatMap(\.shown)
      if json { return try JSONText.of(sums) }
      let whole = FolderSum(path: "total", size: found.saturatingSum { $0.whole })
      return (total ? sums + [whole] : sums).map(line).joined()
    }
    try damage.finish()
  }

  private func line(_ sum: FolderSum) -> String {
    size(sum.size) + "\t" + (null ? sum.path + "\0" : PrintableText.of(sum.path) + "\n")
  }

  private func size(_ byteCount: UInt64) -> String {
    if human { return Quantity.compactBytes(byteCount) }
    return String(inKiB ? byteCount / 1024 + (byteCount % 1024 == 0 ? 0 : 1) : byteCount)
  }

  private func sums(
    at path: String, in container: Container, counted: inout Set<UInt64>, damage: DamageReport
  ) throws -> (whole: UInt64, shown: [FolderSum]) {
    let top = try container.existing(path, followingLinks: PathText.endsWithSlash(path))
    var files = [ListedPath(relative: "", attributes: top)]
    if top.kind == .directory {
      files += try container.readableTree(at: path, skipping: damage.add).map {
        ListedPath(relative: $0.path, attributes: $0.attributes)
      }
    }
    // Contents before the folder: what has a folder's path and more comes before the path alone.
    files.sort { $0.precedesInPostOrder($1) }
    var folders: [[UInt8]: FolderSum] = [:]
    var shown: [FolderSum] = []
    for file in files {
      var sum = folders.removeValue(forKey: file.key) ?? FolderSum()
      sum.path = PathText.below(path, file.relative)
      if file.attributes.kind != .directory,
        file.attributes.linkCount < 2 || counted.insert(file.attributes.id).inserted
      {
        sum.size.addSaturating(file.attributes.size)
        sum.fileCount += 1
      }
      let isAsked = file.depth == 0 || (!summarize && (all || file.attributes.kind == .directory))
      if isAsked, file.depth <= depthMax ?? .max { shown.append(sum) }
      guard file.depth > 0 else { return (sum.size, shown) }
      let parent = file.depth == 1 ? [] : Array(PathText.parent(file.relative).utf8)
      folders[parent, default: FolderSum()].add(sum)
    }
    return (0, shown)
  }
}

private struct ListedPath {
  /// Below PATH; empty for itself.
  let relative: String
  let attributes: FileAttributes
  /// Sorts a folder behind everything in it: 0xff stands in no UTF-8, 0 in no name.
  private let order: [UInt8]

  init(relative: String, attributes: FileAttributes) {
    self.relative = relative
    self.attributes = attributes
    order = relative.utf8.map { $0 == UInt8(ascii: "/") ? 0 : $0 } + (relative.isEmpty ? [0xff] : [0, 0xff])
  }

  /// Bytes, because Swift takes two spellings of a character for one.
  var key: [UInt8] { Array(relative.utf8) }
  var depth: Int { relative.isEmpty ? 0 : PathText.depth(relative) + 1 }

  func precedesInPostOrder(_ other: ListedPath) -> Bool { order.lexicographicallyPrecedes(other.order) }
}

private struct FolderSum: Encodable {
  var path = ""
  var size: UInt64 = 0
  /// Of files and links.
  var fileCount = 0

  mutating func add(_ other: FolderSum) {
    size.addSaturating(other.size)
    fileCount += other.fileCount
  }
}
