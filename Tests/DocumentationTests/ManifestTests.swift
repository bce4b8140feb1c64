import Foundation
import TestSupport
import Testing

/// What the manifest promises to who depends on the package (Documentation/PACKAGE.md).
struct ManifestTests {
  private struct Manifest: Decodable {
    struct Dependency: Decodable {
      /// Name, package, module aliases, condition.
      let product: [Part?]?
      /// Name, condition.
      let byName: [Part?]?
    }
    struct Setting: Decodable { let tool: String }
    struct Target: Decodable {
      let name: String
      let type: String
      let dependencies: [Dependency]
      let pluginUsages: [Part]?
      let settings: [Setting]
    }
    struct Product: Decodable {
      let name: String
      let targets: [String]
    }
    struct Trait: Decodable {
      let name: String
      let enabledTraits: [String]
    }
    let targets: [Target]
    let products: [Product]
    let traits: [Trait]

    /// Those that a trait enables, with itself.
    func enabled(by traits: Set<String>) -> Set<String> {
      traits.union(self.traits.filter { traits.contains($0.name) }.flatMap(\.enabledTraits))
    }

    /// Products of other packages that building these targets needs, with the traits of each.
    func external(_ names: [String]) -> [(name: String, traits: Set<String>)] {
      var (toVisit, known, found) = (names, Set<String>(), [(String, Set<String>)]())
      while let name = toVisit.popLast() {
        guard known.insert(name).inserted, let target = targets.first(where: { $0.name == name }) else {
          continue
        }
        for dependency in target.dependencies {
          if let product = dependency.product {
            found.append((product[0]?.text ?? "", Set(product.last??.traits ?? [])))
          }
          if let name = dependency.byName?[0]?.text { toVisit.append(name) }
        }
      }
      return found
    }
  }

  /// A text, or a condition.
  private struct Part: Decodable {
    let text: String?
    let traits: [String]?

    private struct Condition: Decodable { let traits: [String]? }

    init(from decoder: any Decoder) throws {
      let value = try decoder.singleValueContainer()
      text = try? value.decode(String.self)
      traits = text == nil ? (try? value.decode(Condition.self))?.traits : nil
    }
  }

  private static func manifest() async throws -> Manifest {
    let scratch = TemporaryFolder()
    let outcome = try await Toolchain.run(
      [
        "swift", "package", "--package-path", Page.package.path, "--scratch-path", scratch.url.path,
        "dump-package",
      ], in: scratch.url, outputOnly: true)
    try #require(outcome.status == 0)
    return try JSONDecoder().decode(Manifest.self, from: Data(outcome.text.utf8))
  }

  /// The page's table: which products a set of traits is for.
  private static func table() throws -> [(traits: Set<String>, products: [String])] {
    let page = Page.package.appending(path: "Documentation/PACKAGE.md")
    return try String(contentsOf: page, encoding: .utf8).split(separator: "\n").compactMap { line in
      let cells = line.split(separator: "|")
      guard cells.count == 4, cells[1].contains("`[") else { return nil }
      let traits = cells[1].matches(of: /"(\w+)"/).map { String($0.1) }
      return (Set(traits), cells[2].matches(of: /`([\w-]+)`/).map { String($0.1) })
    }
  }

  @Test func eachProductNeedsTheTraitsOfThePage() async throws {
    let manifest = try await Self.manifest()
    let table = try Self.table()
    #expect(table.count == 6)
    #expect(Set(table.flatMap(\.products)) == Set(manifest.products.map(\.name)))
    for (traits, products) in table {
      let enabled = manifest.enabled(by: traits)
      for product in manifest.products where products.contains(product.name) {
        let external = manifest.external(product.targets)
        #expect(external.isEmpty == traits.isEmpty, "\(product.name)")
        for (name, needed) in external {
          #expect(
            !needed.isDisjoint(with: enabled), "\(product.name) needs \(name), which \(traits) do not enable")
        }
      }
    }
  }

  /// Tests, examples and benchmarks, too: SwiftPM resolves what any target names.
  @Test func eachProductOfAnotherPackageHasItsTrait() async throws {
    let manifest = try await Self.manifest()
    let (names, targets) = (Set(manifest.traits.map(\.name)), Set(manifest.targets.map(\.name)))
    var count = 0
    for target in manifest.targets {
      for (name, traits) in manifest.external([target.name]) {
        count += 1
        #expect(
          !traits.isEmpty && names.isSuperset(of: traits),
          "\(target.name) has \(name) without a trait: whoever enables none would fetch it")
      }
      for name in target.dependencies.compactMap({ $0.byName?[0]?.text }) {
        #expect(
          targets.contains(name), "\(target.name) names \(name), which is none of the package's targets")
      }
    }
    #expect(count > 50)
  }

  @Test func nothingElseIsNeededToBuild() async throws {
    let manifest = try await Self.manifest()
    #expect(manifest.targets.filter { $0.type == "system" }.map(\.name) == ["CSodium"])
    for target in manifest.targets {
      #expect(
        (target.pluginUsages ?? []).isEmpty && !["plugin", "binary"].contains(target.type), "\(target.name)")
      #expect(!target.settings.contains { $0.tool == "linker" }, "\(target.name)")
    }
    #expect(
      manifest.enabled(by: ["default"]) == ["default", "Services", "Push", "Launcher", "Program", "GD"])
    #expect(manifest.enabled(by: ["Program"]) == ["Program", "Services", "Launcher"])
  }

  /// An import that another target happens to bring has no condition of its own.
  @Test func whatIsImportedIsDeclared() async throws {
    let manifest = try await Self.manifest()
    let system: Set = [
      "Foundation", "FoundationEssentials", "Dispatch", "Synchronization", "Testing", "Glibc", "Musl",
      "Darwin", "Network", "Swift",
    ]
    for target in manifest.targets {
      // A Swift module may be the overlay of a C module of its name.
      let declared = Set(
        [target.name]
          + target.dependencies.compactMap { ($0.product ?? $0.byName)?[0]?.text }.map {
            $0.replacing("-", with: "_")
          })
      let folder = ["Sources", "Tests"].map { Page.package.appending(path: "\($0)/\(target.name)") }
        .first { FileManager.default.fileExists(atPath: $0.path) }
      guard let folder, let files = FileManager.default.enumerator(atPath: folder.path) else { continue }
      for case let file as String in files where file.hasSuffix(".swift") && !file.hasSuffix(".pb.swift") {
        let text = try String(contentsOf: folder.appending(path: file), encoding: .utf8)
        for line in text.matches(
          of: /(?m)^(?:@\w+ )*(?:public |package |internal )?import (?:struct |class |enum |func )?(\w+)/)
        {
          let module = String(line.1)
          #expect(
            declared.contains(module) || system.contains(module),
            "\(target.name)/\(file) imports \(module), which the manifest does not name")
        }
      }
    }
  }
}
