import ArgumentParser
import ContainerStore

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

struct FindCommand: ParsableCommand, ReportingCommand {
  static let configuration = CommandConfiguration(
    commandName: "find", abstract: "Prints the files that pass all tests.",
    usage: "dynamics find DIR [PATH…] [TESTS]\ndynamics find CONTAINER:/path… [TESTS]",
    discussion: """
      Each PATH and everything below it, folders before their contents, with control characters escaped. N is exactly so many, \
      +N more, -N fewer.
      """)

  @Argument(help: "The container, or CONTAINER:/path.", completion: .directory)
  var dir: String

  @Argument(help: "Folders or files in the container. (default: /)")
  var path: [String] = []

  @OptionGroup var credential: CredentialOptions

  @Option(
    name: .customLong("name", withSingleDash: true), parsing: .unconditional,
    help: ArgumentHelp("The name matches: *, ?, [a-z], [!a].", valueName: "glob"))
  var name: String?

  @Option(
    name: .customLong("iname", withSingleDash: true), parsing: .unconditional,
    help: ArgumentHelp("The name matches in any case.", valueName: "glob"))
  var nameInAnyCase: String?

  @Option(
    name: .customLong("path", withSingleDash: true), parsing: .unconditional,
    help: ArgumentHelp("The printed path matches; * and ? match slashes, too.", valueName: "glob"))
  var wholePath: String?

  @Option(
    name: .customLong("type", withSingleDash: true),
    help: ArgumentHelp("Files (f), folders (d), symbolic links (l).", valueName: "f,d,l"))
  var type: TypeTest?

  @Option(
    name: .customLong("size", withSingleDash: true), parsing: .unconditional,
    help: ArgumentHelp(
      "The size, rounded up to blocks of 512 bytes, bytes (c), KiB, MiB or GiB.", valueName: "[+-]N[bckMG]"))
  var size: SizeTest?

  @Flag(
    name: .customLong("empty", withSingleDash: true),
    help: "Files without contents, folders with nothing in them."
  )
  var isEmpty = false

  @Option(
    name: .customLong("mtime", withSingleDash: true), parsing: .unconditional,
    help: ArgumentHelp("Modified so many whole days ago.", valueName: "[+-]N"))
  var days: AgeTest?

  @Option(
    name: .customLong("mmin", withSingleDash: true), parsing: .unconditional,
    help: ArgumentHelp("Modified so many whole minutes ago.", valueName: "[+-]N"))
  var minutes: AgeTest?

  @Option(
    name: .customLong("newer", withSingleDash: true), parsing: .unconditional,
    help: ArgumentHelp("Modified later than that file of the container.", valueName: "path"))
  var newer: String?

  @Option(
    name: .customLong("mindepth", withSingleDash: true),
    help: ArgumentHelp("So many levels below PATH, or more.", valueName: "n"))
  var depthMin: Int?

  @Option(
    name: .customLong("maxdepth", withSingleDash: true),
    help: ArgumentHelp("So many levels below PATH, or fewer; PATH itself is 0.", valueName: "n"))
  var depthMax: Int?

  @Flag(
    name: [.customLong("print0", withSingleDash: true), .customShort("0"), .customLong("null")],
    help: "Prints exact paths, each with a NUL behind it.")
  var null = false

  @Flag(help: "Prints one JSON array.")
  var json = false

  var reportsJSON: Bool { json }

  func validate() throws {
    if json, null { throw ValidationError("--json has exact paths; leave out -print0.") }
    if depthMin ?? 0 < 0 || depthMax ?? 0 < 0 {
      throw ValidationError("-mindepth and -maxdepth take 0 or more.")
    }
    _ = try operands()
  }

  private func operands() throws -> ContainerOperands { try ContainerOperands(dir, path) }

  func run() throws {
    Interruption.shared.endAtOnce()
    let operands = try operands()
    let secret = try credential.secret(for: operands.directory)
    let damage = DamageReport(asJSON: json)
    let found = try withContainer(
      at: operands.directory, secret, mode: .readOnly, findings: json ? .json : .text
    ) { container in
      let passes = try test(in: container)
      return try FoundPaths(operands.paths.isEmpty ? ["/"] : operands.paths, asJSON: json) { path in
        try files(at: path, in: container, damage: damage).filter(passes).map(\.file)
      }
    }
    try found.print { found in
      let files = found.flatMap { $0 }
      if json { return try JSONText.of(files.map(FileDescription.init)) }
      return files.map { null ? $0.path + "\0" : PrintableText.of($0.path) + "\n" }.joined()
    }
    try damage.finish()
  }

  /// A file with what only the list that it is from tells.
  private struct Candidate {
    var file: DescribedFile
    var depth: Int
    var hasContents: Bool
  }

  private func files(at path: String, in container: Container, damage: DamageReport) throws -> [Candidate] {
    let files = try container.describedTree(path, damage: damage)
    let first = PathText.endsWithSlash(path) ? PathText.depth(path) : PathText.depth(path) + 1
    return files.indices.map { i in
      let depth = i == 0 ? 0 : PathText.depth(files[i].path) - first + 1
      // In this order, what is in a folder follows it.
      let next = i + 1 < files.count ? PathText.depth(files[i + 1].path) - first + 1 : 0
      return Candidate(file: files[i], depth: depth, hasContents: next > depth)
    }
  }

  private func test(in container: Container) throws -> (Candidate) -> Bool {
    let patterns =
      (name.map { [NamePattern($0)] } ?? [])
      + (nameInAnyCase.map { [NamePattern($0, ignoringCase: true)] } ?? [])
    let wholePath = wholePath.map { NamePattern($0) }
    let modified = try newer.map { try container.existing($0, followingLinks: true).modified }
    let now = Self.now()
    return { candidate in
      let file = candidate.file.attributes
      guard candidate.depth >= depthMin ?? 0, candidate.depth <= depthMax ?? .max else { return false }
      let name = PathText.lastName(candidate.file.path)
      guard patterns.allSatisfy({ $0.matches(name) }), wholePath?.matches(candidate.file.path) ?? true,
        type?.holds(for: file.kind) ?? true, size?.holds(for: file.size) ?? true
      else { return false }
      if isEmpty {
        guard file.kind == .directory ? !candidate.hasContents : file.kind == .file && file.size == 0 else {
          return false
        }
      }
      if let modified, file.modified <= modified { return false }
      return days?.holds(for: file.modified, now: now, unitSeconds: 86400) ?? true
        && minutes?.holds(for: file.modified, now: now, unitSeconds: 60) ?? true
    }
  }

  /// Nanoseconds since 1970.
  static func now() -> Int64 {
    var time = timespec()
    clock_gettime(CLOCK_REALTIME, &time)
    return NativeTime.nanoseconds(seconds: time.tv_sec, nanoseconds: time.tv_nsec)
  }
}
