import Foundation
import Testing

/// The folders of ContainerStore depend on each other in one direction, and its types stay small. Swift knows no
/// folders, so names are what is compared: a file uses a folder when it names something that only this folder declares.
struct FolderTests {
  /// Lowest first. A file may use its own folder and those before it.
  static let folders = [
    "Threads",  // locks, signals
    "IO",  // system calls
    "Errors",
    "Format",  // bytes on the disk, without reading or writing them
    "Slabs",  // files of sealed segments
    "Journal",
    "Catalog",  // records: tables, journals, snapshots
    "Store",  // the engine: transactions, commits, checkpoints, compaction
    "Files",  // paths, and what they lead to
    "Observing",
    "OpenFile",
    "Messages",  // outbox, arrivals, inbox
    "Bulk",  // import, export, copying, sending
    "Check",  // verification, repair
    "Facade",  // what everybody else sees
  ]

  /// State of the engine that only its own folder touches.
  static let engineState = ["commitLog", "catalogState", "openRuns", "keyring", "catalogFiles"]
  static let lineCountMax = 800

  @Test func everyFolderHasALine() throws {
    let found = Set(try Self.files().map(\.folder))
    #expect(found == Set(Self.folders))
  }

  @Test func foldersDependOnEachOtherInOneDirection() throws {
    for violation in Self.violations(in: try Self.files()) { Issue.record(Comment(rawValue: violation)) }
  }

  @Test func onlyTheEngineTouchesItsState() throws {
    for file in try Self.files() where file.folder != "Store" {
      for name in Self.engineState where file.members.contains(name) {
        Issue.record("\(file.path) uses .\(name), which belongs to Store/: give the store a method for it")
      }
    }
  }

  @Test func noTypeIsTooLarge() throws {
    var lineCounts: [String: Int] = [:]
    for file in try Self.files() { lineCounts.merge(file.lineCounts, uniquingKeysWith: +) }
    #expect(lineCounts.count > 100)
    for (type, lineCount) in lineCounts where lineCount > Self.lineCountMax {
      Issue.record("\(type) has \(lineCount) lines over all of its files; \(Self.lineCountMax) is the limit")
    }
  }

  /// Types of the services, over all of their files.
  @Test func noTypeOfTheServicesIsTooLarge() throws {
    var lineCounts: [String: Int] = [:]
    for module in ["ServiceWire", "ServiceBroker", "LocalTransport", "AppKinetics"] {
      for path in try SourceTree.files(of: module, extensions: ["swift"]) where !path.hasSuffix(".pb.swift") {
        lineCounts.merge(SourceFile(path, try SourceTree.text(of: path)).lineCounts, uniquingKeysWith: +)
      }
    }
    #expect(lineCounts.count > 100)
    for (type, lineCount) in lineCounts where lineCount > 700 {
      Issue.record("\(type) has \(lineCount) lines over all of its files")
    }
  }

  /// `Scripts/sanitize --short` builds those suites that the manifest names.
  @Test func theManifestNamesTheSuitesThatAreNamedForConcurrency() throws {
    let manifest = try String(
      contentsOf: SourceTree.package.appending(path: "Package.swift"), encoding: .utf8)
    for target in ["ContainerStoreTests", "SecureFilesTests"] {
      let folder = SourceTree.package.appending(path: "Tests/\(target)").path
      let suites = try FileManager.default.contentsOfDirectory(atPath: folder)
        .filter { $0.hasSuffix("ConcurrencyTests.swift") }
      #expect(!suites.isEmpty)
      for suite in suites { #expect(manifest.contains("\"\(suite)\""), "\(suite) of \(target)") }
    }
  }

  // MARK: The test itself

  @Test func reportsAUseUpward() {
    let low = SourceFile("IO/Low.swift", "final class Low { func read() { High.shared.begin() } }")
    let high = SourceFile(
      "Store/High.swift", "struct High { static let shared = High()\n func beginWork() {} }")
    #expect(Self.violations(in: [low, high]).count == 1)
    #expect(Self.violations(in: [low, high]).first?.contains("IO/Low.swift uses High of Store/") == true)
    #expect(Self.violations(in: [SourceFile("Facade/Low.swift", "let a = High()"), high]).isEmpty)
  }

  @Test func reportsAMemberThatAnExtensionAboveDeclares() {
    let low = SourceFile("Catalog/Low.swift", "struct Low { func a() { self.onlyAbove() } }")
    let high = SourceFile("Messages/High.swift", "extension Low { func onlyAbove() {} }")
    #expect(Self.violations(in: [low, high]).count == 1)
    // Another one may be meant.
    let other = SourceFile("Catalog/Other.swift", "struct Other { func onlyAbove() {} }")
    #expect(Self.violations(in: [low, high, other]).isEmpty)
  }

  @Test func countsTheLinesOfATypeOverItsFiles() {
    let file = SourceFile("IO/A.swift", "struct A {\n  let a = 1\n}\n\nextension A {\n}\nenum B { case c }\n")
    #expect(file.lineCounts == ["A": 5, "B": 1])
  }

  // MARK: Names

  static func files() throws -> [SourceFile] {
    try SourceTree.files(of: "ContainerStore", extensions: ["swift"]).map { path in
      SourceFile(String(path.dropFirst("ContainerStore/".count)), try SourceTree.text(of: path))
    }
  }

  static func violations(in files: [SourceFile]) -> [String] {
    var owners: [String: Set<String>] = [:]
    var declarationCounts: [String: Int] = [:]
    for file in files {
      for name in file.declarations { owners[name, default: []].insert(file.folder) }
      for name in file.declaredMembers { declarationCounts[name, default: 0] += 1 }
    }
    // Members that the package declares once, in an extension of a type of its own.
    var extending: [String: Set<String>] = [:]
    for file in files {
      for (name, type) in file.extensionMembers where declarationCounts[name] == 1 && owners[type] != nil {
        extending[name] = [file.folder]
      }
    }
    func rank(_ folder: String) -> Int { folders.firstIndex(of: folder) ?? folders.count }
    return files.flatMap { file in
      let used: [(name: String, owners: Set<String>?)] =
        file.names.map { ($0, owners[$0]) } + file.members.map { ($0, extending[$0]) }
      return used.compactMap { name, owners -> String? in
        guard let owners, owners.count == 1, let owner = owners.first, rank(owner) > rank(file.folder) else {
          return nil
        }
        return """
          \(file.path) uses \(name) of \(owner)/, which is above it: move what it needs down, or the code up \
          (the order is in Tests/ArchitectureTests/FolderTests.swift)
          """
      }.sorted()
    }
  }

  /// The names that a file declares and uses.
  struct SourceFile {
    let path: String
    var folder: String { String(path.prefix { $0 != "/" }) }
    /// Types, functions and variables at the top of the file.
    private(set) var declarations: Set<String> = []
    /// Everything that is declared deeper, as often as it is.
    private(set) var declaredMembers: [String] = []
    /// Members of extensions, with the type that is extended.
    private(set) var extensionMembers: [(name: String, type: String)] = []
    /// Words of the code.
    private(set) var names: Set<String> = []
    /// Words behind a dot.
    private(set) var members: Set<String> = []
    /// Lines of each type at the top of the file, extensions included.
    private(set) var lineCounts: [String: Int] = [:]

    private static let types: Set = ["struct", "class", "enum", "protocol", "actor", "typealias"]
    private static let values: Set = ["func", "var", "let", "case"]

    init(_ path: String, _ text: String) {
      self.path = path
      let tokens = SwiftSource(text).tokens
      var depth = 0
      var isPrivate = false
      var open: (type: String, line: Int, isExtension: Bool)?
      for (i, token) in tokens.enumerated() {
        let next = i + 1 < tokens.count ? tokens[i + 1] : nil
        switch token.text {
        case "{": depth += 1
        case "}":
          depth -= 1
          if depth == 0, let type = open {
            lineCounts[type.type, default: 0] += token.line - type.line + 1
            open = nil
          }
        case "private", "fileprivate": isPrivate = true
        case _ where Self.types.contains(token.text) || Self.values.contains(token.text):
          guard let name = next?.text, name.first?.isLetter == true, i == 0 || tokens[i - 1].text != "."
          else {
            break
          }
          if depth > 0 { declaredMembers.append(name) } else if !isPrivate { declarations.insert(name) }
          if depth == 1, !isPrivate, let open, open.isExtension { extensionMembers.append((name, open.type)) }
          if depth == 0, Self.types.contains(token.text), token.text != "typealias" {
            open = (name, token.line, false)
          }
          isPrivate = false
        case "extension" where depth == 0:
          if let name = next { open = (name.text, token.line, true) }
        default: break
        }
        names.insert(token.text)
        if i > 0, tokens[i - 1].text == "." { members.insert(token.text) }
      }
      // A word that the file declares itself means that, as far as anybody can tell.
      names.subtract(declaredMembers)
    }
  }
}
