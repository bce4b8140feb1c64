import Foundation
import TestSupport
import Testing

/// What the manifest promises to who depends on the package (Documentation/PACKAGE.md).
struct ManifestTests {
  private struct Manifest: Decodable {
    struct Dependency: Decodable {
      /// Name, package, module aliases, condition.
      let product: [Part?]?
    }
    struct Target: Decodable {
      let name: String
      let type: String
      let dependencies: [Dependency]
      let pluginUsages: [Part]?
    }
    struct Product: Decodable { let name: String }
    struct Trait: Decodable {
      let name: String
      let enabledTraits: [String]
    }
    let targets: [Target]
    let products: [Product]
    let traits: [Trait]
  }

  /// A text, or a condition.
  private struct Part: Decodable {
    let text: String?
    let traits: [String]?

    private struct Condition: Decodable { let traits: [String]? }

    init(from decoder: any Decoder) throws {
      let value = try decoder.singleValueContainer()
      text = try? value.decode(String.self)
      traits = text == nil ? try value.decode(Condition.self).traits : nil
    }
  }

  private static func manifest() async throws -> Manifest {
    let outcome = try await Toolchain.run(
      ["swift", "package", "--package-path", Page.package.path, "dump-package"], in: Page.package,
      outputOnly: true)
    try #require(outcome.status == 0)
    return try JSONDecoder().decode(Manifest.self, from: Data(outcome.text.utf8))
  }

  @Test func eachProductOfAnotherPackageHasItsTrait() async throws {
    let manifest = try await Self.manifest()
    let names = Set(manifest.traits.map(\.name))
    var count = 0
    for target in manifest.targets {
      for product in target.dependencies.compactMap(\.product) {
        count += 1
        let traits = product.count == 4 ? product[3]?.traits ?? [] : []
        #expect(
          !traits.isEmpty && names.isSuperset(of: traits),
          "\(target.name) has \(product.first??.text ?? "") without a trait: whoever enables none would fetch it"
        )
      }
    }
    #expect(count > 50)
  }

  @Test func nothingElseIsNeededToBuild() async throws {
    let manifest = try await Self.manifest()
    #expect(manifest.targets.filter { $0.type == "system" }.map(\.name) == ["CSodium"])
    #expect(manifest.targets.allSatisfy { ($0.pluginUsages ?? []).isEmpty && $0.type != "plugin" })
    #expect(
      Set(manifest.traits.first { $0.name == "default" }?.enabledTraits ?? [])
        == ["Services", "Push", "Program"])
    // What Fuzzing/ needs has no public interface.
    #expect(
      !manifest.products.contains { ["TestSupport", "OpenDynamicsTesting", "ServiceWire"].contains($0.name) })
  }
}
