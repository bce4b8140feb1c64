import Foundation
import Testing

/// What the documentation shows is compiled, and what it shows as a program runs and prints what it says.
struct CodeTests {
  /// What blocks that are not whole may use.
  static let given = """
    container: SecureContainer, files: SecureFileManager, a: SecureContainer, b: SecureContainer,
    url: URL, data: Data, key: consuming SecretBytes
    """

  /// Words with which a block begins that stands outside of functions.
  static let declarations = ["typealias ", "extension ", "public ", "@main", "@Test"]

  /// The page as a source file: a function for each block. Errors are reported at the page's lines.
  static func source(of page: Page) -> String {
    var imports: Set = ["import Foundation", "import SecureFiles"]
    var outside = ""
    var functions = ""
    for block in page.blocks("swift") where !isManifest(block) {
      let lines = block.text.split(separator: "\n", omittingEmptySubsequences: false)
      imports.formUnion(lines.filter { $0.hasPrefix("import ") }.map(String.init))
      let body = lines.map { $0.hasPrefix("import ") ? "" : $0 }.joined(separator: "\n")
      let code = "#sourceLocation(file: \"\(page.path)\", line: \(block.line))\n\(body)#sourceLocation()\n"
      let begin = lines.first { !$0.isEmpty && !$0.hasPrefix("import ") && !$0.hasPrefix("//") } ?? ""
      if declarations.contains(where: { begin.hasPrefix($0) }) {
        outside += code
      } else {
        // A block without `await` is compiled as synchronous code, where calls mean other overloads.
        let effects = body.contains("await ") ? "async throws" : "throws"
        functions += "@MainActor func block\(block.line)(\(given)) \(effects) {\n\(code)}\n"
      }
    }
    return imports.sorted().joined(separator: "\n") + "\n" + outside + functions
  }

  static func isManifest(_ block: Page.Block) -> Bool { block.text.hasPrefix("// swift-tools-version") }

  // MARK: The pages

  @Test func everyPageWithSwiftIsFound() throws {
    let paths = try Page.all().map(\.path)
    for path in [
      "README.md", "Sources/SecureFiles/SecureContainer.swift",
      "Sources/SecureFiles/SecureFiles.docc/GettingStarted.md",
      "Sources/SecureFiles/SecureFiles.docc/ComingFromFileManager.md",
      "Sources/AppKinetics/AppKinetics.docc/Deliveries.md",
    ] { #expect(paths.contains(path)) }
  }

  /// Pages whose blocks, in their order, are one program, which prints what stands in blocks of text.
  static let programs = [
    "Sources/SecureFiles/SecureFiles.docc/GettingStarted.md", "Documentation/SERVICES-START.md",
    "Documentation/SERVICES-TESTING.md", "Documentation/RUNTIME-TESTING.md",
  ]

  @Test(arguments: try Page.all().filter { !programs.contains($0.path) })
  func compiles(page: Page) async throws {
    let folder = TemporaryFolder()
    let file = try folder.write(Self.source(of: page), to: "page.swift")
    let outcome = try await Toolchain.check([file])
    #expect(outcome.status == 0, Comment(rawValue: outcome.text))
  }

  @Test(arguments: programs)
  func runs(path: String) async throws {
    let page = try Page(path: path)
    let code = page.blocks("swift").filter { !Self.isManifest($0) }
      .map { "#sourceLocation(file: \"\(page.path)\", line: \($0.line))\n\($0.text)#sourceLocation()\n" }
    #expect(try await run(code.joined()) == page.blocks("text").map(\.text).joined())
  }

  @Test func exampleOfTheReadmeRuns() async throws {
    let page = try Page(path: "README.md")
    let code = try #require(page.blocks("swift").first).text
    let place = "/tmp/my-app-container"
    #expect(code.contains("\"\(place)\""))
    #expect(try await run(code.replacing(place, with: "my-app-container")) == "[\"note.txt\"]\n")
  }

  private func run(_ code: String) async throws -> String {
    let folder = TemporaryFolder()
    let program = folder.url.appending(path: "program")
    let built = try await Toolchain.build(folder.write(code, to: "main.swift"), to: program)
    try #require(built.status == 0, Comment(rawValue: built.text))
    let outcome = try await Toolchain.run([program.path], in: folder.url, outputOnly: true)
    #expect(outcome.status == 0)
    return outcome.text
  }

  @Test(
    arguments: try Page.all().filter { $0.blocks("swift").contains(where: isManifest) }.map(\.path))
  func manifestIsOne(path: String) async throws {
    let page = try Page(path: path)
    let block = try #require(page.blocks("swift").first { Self.isManifest($0) })
    let folder = TemporaryFolder()
    _ = try folder.write(block.text, to: "Package.swift")
    let outcome = try await Toolchain.run(
      ["swift", "package", "--package-path", folder.url.path, "dump-package"], in: folder.url,
      outputOnly: true)
    #expect(outcome.status == 0)
    #expect(outcome.text.contains("\"SecureFiles\"") && block.text.contains("traits: ["))
    // A path alone would name the package as the reader's folder.
    #expect(!block.text.contains(".package(path:"))
    let own = try String(contentsOf: Page.package.appending(path: "Package.swift"), encoding: .utf8)
    let products = block.text.matches(of: /\.product\(name: "(\w+)"/).map { String($0.1) }
    #expect(!products.isEmpty)
    for product in products { #expect(own.contains(".library(name: \"\(product)\"")) }
  }

  // MARK: The test itself

  @Test func findsBlocksWithTheirLanguagesAndLines() {
    let page = Page(path: "a.md", text: "# A\n\n```swift\nlet a = 1\n\nlet b = 2\n```\n\n```text\nout\n```\n")
    #expect(page.blocks.map(\.language) == ["swift", "text"])
    #expect(page.blocks.map(\.line) == [4, 10])
    #expect(page.blocks.map(\.text) == ["let a = 1\n\nlet b = 2\n", "out\n"])
  }

  @Test func readsOnlyCommentsOfSources() {
    let text = """
      let no = "```swift"
        /// A.
        ///
        /// ```swift
        /// if a {
        ///   b()
        /// }
        /// ```
      """
    let page = Page(path: "a.swift", text: text)
    #expect(page.blocks.map(\.text) == ["if a {\n  b()\n}\n"])
    #expect(page.blocks.map(\.line) == [5])
  }

  @Test func reportsABlockThatDoesNotCompileAtItsLine() async throws {
    let page = Page(path: "Wrong.md", text: "# A\n\n```swift\nimport Foundation\nfiles.noSuchMember()\n```\n")
    let folder = TemporaryFolder()
    let outcome = try await Toolchain.check([folder.write(Self.source(of: page), to: "page.swift")])
    #expect(outcome.status != 0)
    #expect(outcome.text.contains("Wrong.md:5:"))
    #expect(outcome.text.contains("noSuchMember"))
  }
}
