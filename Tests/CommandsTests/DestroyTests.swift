import Foundation
import Testing

/// `container destroy`.
struct DestroyTests {
  @Test func needsAConfirmationAndNoKey() throws {
    let folder = try TemporaryFolder()
    let container = try folder.makeContainer()
    let file = try folder.makeFile("file", [1, 2, 3])
    try folder.run("put", container, file, "/file")
    // There is no terminal to ask.
    let unasked = try folder.runBare("container", "destroy", container)
    #expect(unasked.status == 64 && unasked.errors.contains("--yes"))
    #expect(try folder.run("cat", container, "/file").output == [1, 2, 3])
    #expect(try folder.runBare("container", "destroy", container, "--yes").status == 0)
    #expect(!FileManager.default.fileExists(atPath: container))
    for missing in [container, folder.path("none")] {
      #expect(try folder.runBare("container", "destroy", missing, "--yes").status == 5)
    }
    #expect(try folder.runBare("container", "destroy", file, "--yes").status != 0)
    #expect(FileManager.default.fileExists(atPath: file))
  }
}
