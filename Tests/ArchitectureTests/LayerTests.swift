import Foundation
import Testing

/// Imports go only downward, and only where the table says so. SwiftPM stops neither an import that skips a layer nor an
/// undeclared one that happens to be built.
struct LayerTests {
  /// The table, lowest layer first. A new target gets a line; a new import gets a word in it.
  static let layers: [Layer] = [
    Layer(0, "CSodium"),
    Layer(0, "CLibcrypto"),
    Layer(0, "CPosix"),
    Layer(0, "CGD"),
    Layer(0, "BlackBerryDynamicsModules"),
    Layer(0, "Locks", system: lowSystem),
    Layer(0, "Identifiers", system: lowSystem),
    Layer(
      1, "SodiumPrimitives", imports: ["Locks", "Identifiers", "CSodium", "CLibcrypto"], system: lowSystem),
    Layer(1, "UnixSockets", imports: ["CPosix"], system: lowSystem),
    Layer(1, "ServiceValues", system: highSystem),
    Layer(2, "EncryptedFile", imports: ["Locks", "SodiumPrimitives"], system: lowSystem),
    Layer(
      2, "ServiceWire", imports: ["SodiumPrimitives", "ServiceValues", "SwiftProtobuf"], system: highSystem),
    Layer(2, "PushWire", imports: ["Identifiers", "SwiftProtobuf"], system: highSystem),
    Layer(
      3, "ContainerStore", imports: ["Locks", "CPosix", "SodiumPrimitives", "EncryptedFile"],
      system: lowSystem),
    Layer(
      3, "LocalTransport",
      imports: ["Locks", "SodiumPrimitives", "UnixSockets", "ServiceValues", "ServiceWire"],
      system: highSystem),
    Layer(3, "PushChannels", imports: ["PushWire"], system: highSystem),
    Layer(
      4, "PushClient",
      imports: [
        "Locks", "PushChannels", "PushWire", "GRDB", "Crypto", "Logging", "NIOCore", "NIOPosix", "NIOHTTP1",
        "NIOWebSocket", "NIOSSL",
      ], system: highSystem.union(["Network"])),
    Layer(
      4, "PushRelay",
      imports: [
        "Locks", "PushWire", "GRDB", "Crypto", "Logging", "X509", "SwiftASN1", "CoreMetrics", "HTTPTypes",
        "HummingbirdCore", "HummingbirdTLS", "ServiceLifecycle", "AsyncHTTPClient", "NIOCore", "NIOPosix",
        "NIOHTTP1", "NIOHTTPTypes", "NIOWebSocket", "NIOSSL",
      ], system: highSystem),
    Layer(
      4, "ServiceBroker",
      imports: [
        "Locks", "CPosix", "UnixSockets", "SodiumPrimitives", "ServiceValues", "ServiceWire",
        "LocalTransport", "Logging", "ServiceLifecycle",
      ], system: highSystem),
    Layer(4, "SecureFiles", imports: ["Locks", "ContainerStore", "SodiumPrimitives"], system: highSystem),
    Layer(
      6, "AppKinetics",
      imports: [
        "Locks", "CPosix", "UnixSockets", "SodiumPrimitives", "ServiceValues", "ServiceWire",
        "LocalTransport", "ContainerStore", "SecureFiles", "Logging",
      ], system: highSystem),
    Layer(
      7, "AppRuntime",
      imports: [
        "Locks", "CPosix", "SodiumPrimitives", "ServiceValues", "ContainerStore", "SecureFiles",
        "AppKinetics",
        "Logging",
      ], system: highSystem),
    Layer(
      8, "AppKineticsTesting",
      imports: [
        "Locks", "SodiumPrimitives", "ServiceWire", "LocalTransport", "ServiceBroker", "ContainerStore",
        "SecureFiles", "AppKinetics", "AppRuntime", "TestSupport", "Logging",
      ], system: highSystem),
    Layer(
      8, "PushTesting", imports: ["Locks", "PushRelay", "PushWire", "Logging", "NIOCore", "NIOPosix"],
      system: highSystem),
    Layer(
      8, "LauncherPage",
      imports: [
        "Locks", "Identifiers", "UnixSockets", "SodiumPrimitives", "SecureFiles", "AppKinetics", "AppRuntime",
        "Logging", "NIOCore", "NIOPosix", "NIOHTTP1",
      ], system: highSystem),
    Layer(
      8, "BlackBerryDynamics",
      imports: [
        "CGD", "Locks", "CPosix", "SodiumPrimitives", "SecureFiles", "AppKinetics", "AppRuntime",
        "PushClient",
        "Logging",
      ], system: highSystem),
    Layer(8, "OpenDynamicsTesting", imports: ["Locks", "ContainerStore", "TestSupport"], system: highSystem),
    Layer(9, "GD", imports: ["BlackBerryDynamics"]),
    Layer(9, "GD_C", imports: ["BlackBerryDynamics"]),
    Layer(
      9, "BlackBerryDynamicsTesting",
      imports: ["Locks", "BlackBerryDynamics", "AppKineticsTesting", "PushTesting"],
      system: highSystem),
    Layer(
      9, "Commands",
      imports: [
        "Locks", "Identifiers", "CPosix", "UnixSockets", "SodiumPrimitives", "EncryptedFile", "ServiceValues",
        "ServiceWire", "LocalTransport", "ServiceBroker", "ContainerStore", "SecureFiles", "AppKinetics",
        "AppRuntime", "LauncherPage", "ArgumentParser", "Logging",
      ], system: highSystem),
    Layer(10, "dynamics", imports: ["Commands"], system: highSystem),
    Layer(
      10, "dynamics-push",
      imports: [
        "Locks", "Identifiers", "UnixSockets", "PushRelay", "PushClient", "PushWire", "ArgumentParser",
        "AsyncHTTPClient",
        "Configuration",
        "Logging", "NIOCore", "NIOHTTP1", "NIOPosix", "NIOSSL", "ServiceLifecycle", "SystemPackage",
      ], system: highSystem),
  ]

  /// Foundation stays out of everything below the products: those layers take bytes and descriptors.
  static let lowSystem: Set = ["Glibc", "Musl", "Darwin", "Synchronization", "Dispatch"]
  static let highSystem = lowSystem.union(["Foundation", "FoundationEssentials"])

  struct Layer: Sendable, CustomTestStringConvertible {
    let level: Int
    let target: String
    /// Targets and modules of other packages.
    let imports: Set<String>
    /// Modules that come with the compiler or the system.
    let system: Set<String>

    init(_ level: Int, _ target: String, imports: Set<String> = [], system: Set<String> = []) {
      self.level = level
      self.target = target
      self.imports = imports
      self.system = system
    }

    var testDescription: String { target }

    /// One sentence for each import in `text` that the table does not allow, with what to do about it.
    func violations(in text: String, file: String) -> [String] {
      imported(by: text, isSwift: file.hasSuffix(".swift")).compactMap { module, line in
        guard module != target, !imports.contains(module), !system.contains(module) else { return nil }
        let remedy =
          if LayerTests.layers.contains(where: { $0.target == module && $0.level >= level }) {
            "that target is not below this one: move the code up, or what it needs down"
          } else {
            """
            move the code to a layer that may, or, when \(target) is the right place, add "\(module)" to its line in \
            Tests/ArchitectureTests/LayerTests.swift and, if it is a target or a package, to its dependencies in \
            Package.swift
            """
          }
        return "Sources/\(file):\(line) imports \(module), which \(target) may not: \(remedy)"
      }
    }

    /// In C, what counts is a header named after a target.
    private func imported(by text: String, isSwift: Bool) -> [(module: String, line: Int)] {
      if isSwift { return SwiftSource(text).imports }
      return text.split(separator: "\n", omittingEmptySubsequences: false).enumerated().compactMap {
        index, line in
        guard let match = line.firstMatch(of: /^\s*#\s*(?:include|import)\s*["<](?:.*\/)?(\w+)\.h[">]/) else {
          return nil
        }
        let module = String(match.1)
        return LayerTests.layers.contains { $0.target == module } ? (module, index + 1) : nil
      }
    }
  }

  /// One sentence for each folder without a line and each line without a folder.
  static func disagreements(folders: [String]) -> [String] {
    let lines = layers.map(\.target)
    return folders.filter { !lines.contains($0) }.map {
      "Sources/\($0) is not in the table: add a line with its level and its imports to LayerTests.layers"
    }
      + lines.filter { !folders.contains($0) }.map {
        "Sources/\($0) does not exist: remove its line from LayerTests.layers"
      }
  }

  // MARK: The sources

  @Test(arguments: layers)
  func importsOnlyWhatTheTableAllows(layer: Layer) throws {
    let files = try SourceTree.files(of: layer.target, extensions: ["swift", "c", "h", "m", "cpp"])
    #expect(!files.isEmpty)
    for file in files {
      for violation in layer.violations(in: try SourceTree.text(of: file), file: file) {
        Issue.record(Comment(rawValue: violation))
      }
    }
  }

  @Test func everyFolderHasALineAndEveryLineAFolder() throws {
    for disagreement in Self.disagreements(folders: try SourceTree.targets()) {
      Issue.record(Comment(rawValue: disagreement))
    }
  }

  @Test func noFolderIsDeeperThanOneInATarget() throws {
    for target in try SourceTree.targets() {
      for file in try SourceTree.files(of: target, extensions: ["swift", "c", "h"]) {
        #expect(file.split(separator: "/").count <= 3, "\(file)")
      }
    }
  }

  @Test(arguments: layers)
  func tableGoesOnlyDownward(layer: Layer) {
    for other in Self.layers where layer.imports.contains(other.target) {
      #expect(
        other.level < layer.level, "\(layer.target) may not import \(other.target), which is not below it")
    }
    #expect(
      Self.layers.map(\.level) == Self.layers.map(\.level).sorted(), "the table is not in the order of levels"
    )
  }

  // MARK: The test itself

  @Test(arguments: [
    ("import Foundation", "Foundation"),
    ("public import Foundation", "Foundation"),
    ("package import Foundation", "Foundation"),
    ("internal import Foundation", "Foundation"),
    ("fileprivate import Foundation", "Foundation"),
    ("private import Foundation", "Foundation"),
    ("@testable import Foundation", "Foundation"),
    ("@testable\nimport Foundation", "Foundation"),
    ("@preconcurrency public import Foundation", "Foundation"),
    ("@_exported import Foundation", "Foundation"),
    ("@_spi(Internals) @testable import Foundation", "Foundation"),
    ("@_implementationOnly import Foundation", "Foundation"),
    ("import struct Foundation.Data", "Foundation"),
    ("public import class Foundation.Progress", "Foundation"),
    ("import func Foundation.memcmp", "Foundation"),
    ("import let Foundation.errno", "Foundation"),
    ("import typealias Foundation.TimeInterval", "Foundation"),
    ("import Foundation.NSData", "Foundation"),
    ("import `Foundation`", "Foundation"),
    ("import\n  Foundation", "Foundation"),
    ("import /* the whole */ Foundation // and more", "Foundation"),
    ("#if os(Linux)\n  import Foundation\n#endif", "Foundation"),
    ("#if canImport(Glibc)\n#else\n\timport Foundation\n#endif", "Foundation"),
    ("let a = 1; import Foundation", "Foundation"),
    ("let a = \"\\(1)\"\nimport Foundation", "Foundation"),
    ("let a = \"\"\"\n  \"quoted\" \\(b(\")\")) \\\"\"\" \n  \"\"\"\nimport Foundation", "Foundation"),
    ("let a = #\"\\\"#\nimport Foundation", "Foundation"),
    ("let a = /\"/\nimport Foundation", "Foundation"),
    ("/* /* nested */ */ import Foundation", "Foundation"),
    ("import SodiumPrimitives", "SodiumPrimitives"),
  ])
  func readsEveryFormOfImport(text: String, module: String) {
    #expect(SwiftSource(text).imports.map(\.module) == [module])
  }

  @Test(arguments: [
    "// import Foundation",
    "/// import Foundation",
    "/* import Foundation */",
    "/* /* */ import Foundation */",
    "/*\nimport Foundation\n*/",
    "let a = \"import Foundation\"",
    "let a = #\"\"import Foundation\"#",
    "let a = \"\"\"\n  import Foundation\n  \"\"\"",
    "let a = #\"\"\"\n  \"\"\"\n  import Foundation\n  \"\"\"#",
    "#if canImport(Foundation)\n#endif",
    "let important = Foundation",
    "store.import(Foundation)",
    "func read(import: Foundation) {}",
  ])
  func readsNothingElseAsAnImport(text: String) {
    #expect(SwiftSource(text).imports.isEmpty)
  }

  @Test func readsAllImportsWithTheirLines() {
    let text =
      "import CPosix\n\n#if os(Linux)\n  import Glibc\n#endif\n// import No\npublic import struct A.B; import C"
    let imports = SwiftSource(text).imports
    #expect(imports.map(\.module) == ["CPosix", "Glibc", "A", "C"])
    #expect(imports.map(\.line) == [1, 4, 7, 7])
  }

  @Test func reportsAMadeUpViolation() throws {
    let layer = try #require(Self.layers.first { $0.target == "EncryptedFile" })
    let text = "import SodiumPrimitives\nimport Synchronization\n\npublic import struct Foundation.Data\n"
    let violations = layer.violations(in: text, file: "EncryptedFile/MadeUp.swift")
    #expect(violations.count == 1)
    #expect(
      violations.first?.hasPrefix("Sources/EncryptedFile/MadeUp.swift:4 imports Foundation, which") == true)
    #expect(violations.first?.contains("add \"Foundation\" to its line") == true)
  }

  @Test(arguments: ["ContainerStore", "CSodium", "Commands"])
  func reportsAnImportUpwardSidewaysOrPastTheTable(module: String) throws {
    let layer = try #require(Self.layers.first { $0.target == "EncryptedFile" })
    let violations = layer.violations(in: "@testable import \(module)", file: "EncryptedFile/MadeUp.swift")
    #expect(violations.count == 1)
    #expect(violations.first?.contains("is not below") == (module != "CSodium"))
  }

  @Test func reportsACHeaderOfAnotherTarget() throws {
    let layer = try #require(Self.layers.first { $0.target == "CPosix" })
    let text = "#include \"CPosix.h\"\n#include <fcntl.h>\n# include \"../CLibcrypto/include/CLibcrypto.h\"\n"
    let violations = layer.violations(in: text, file: "CPosix/cposix.c")
    #expect(violations.count == 1)
    #expect(violations.first?.hasPrefix("Sources/CPosix/cposix.c:3 imports CLibcrypto") == true)
  }

  @Test func reportsFoldersAndLinesThatDoNotMatch() {
    let targets = Self.layers.map(\.target)
    #expect(Self.disagreements(folders: targets) == [])
    #expect(Self.disagreements(folders: targets + ["Helpers"]).count == 1)
    #expect(Self.disagreements(folders: Array(targets.dropLast())).count == 1)
  }
}
