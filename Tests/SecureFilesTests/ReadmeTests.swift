import Foundation
import SecureFiles
import SodiumPrimitives
import Testing

/// The README's example, line by line: the first test compares it with the page, so that neither can change alone.
struct ReadmeTests {
  @Test func exampleOfTheReadmeIsTheOneBelow() throws {
    let root = URL(filePath: #filePath).deletingLastPathComponent().appending(path: "../..")
    let readme = try String(contentsOf: root.appending(path: "README.md"), encoding: .utf8)
    let source = try String(contentsOf: URL(filePath: #filePath), encoding: .utf8)
    let blocks = readme.components(separatedBy: "```swift\n").dropFirst().map {
      $0.components(separatedBy: "```")[0]
    }
    let lines = blocks.joined().split(separator: "\n").filter {
      !$0.hasPrefix("import ") && !$0.contains("filePath:")
    }
    #expect(lines.count >= 7)
    for line in lines { #expect(source.contains("\n    \(line)\n"), "the README says: \(line)") }
  }

  @Test func exampleOfTheReadmeRuns() async throws {
    let folder = FileManager.default.temporaryDirectory.appending(path: "readme-\(UUID().uuidString)")
    try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
    defer { try? FileManager.default.removeItem(at: folder) }
    let url = folder.appending(path: "my-app-container")
    // The README's own lines.
    let container = try SecureContainer.create(at: url, passphrase: SecretBytes(utf8: "correct horse"))
    try container.files.createDirectory(atPath: "/Documents", withIntermediateDirectories: true)
    try container.files.write(Data("for my eyes only".utf8), toPath: "/Documents/note.txt")
    print(try container.files.contentsOfDirectory(atPath: "/Documents"))
    try container.close()

    let a = try SecureContainer.open(at: url, passphrase: SecretBytes(utf8: "correct horse"))
    let b = try SecureContainer.create(
      at: folder.appending(path: "b"), rawKey: SecretBytes.random(count: 32))
    try a.files.write(Data("report".utf8), toPath: "/Documents/report.pdf")
    let receipt = try await a.send(["/Documents/report.pdf"], to: b, sender: "com.example.a")
    print(receipt.files.map(\.path))
    #expect(b.files.contents(atPath: receipt.files[0].path) == Data("report".utf8))
  }
}
