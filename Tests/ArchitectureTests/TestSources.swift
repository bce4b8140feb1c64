import Foundation

/// The texts of the tests, for pages that name some of them.
struct TestSources {
  /// By paths from the package.
  let texts: [String: String]

  init() throws {
    var texts: [String: String] = [:]
    for folder in ["Tests", "Fuzzing/Sources"] {
      let url = SourceTree.package.appending(path: folder)
      for path in try FileManager.default.subpathsOfDirectory(atPath: url.path)
      where path.hasSuffix(".swift") || path.hasSuffix(".py") {
        texts["\(folder)/\(path)"] = try String(contentsOf: url.appending(path: path), encoding: .utf8)
      }
    }
    self.texts = texts
  }

  /// Whether there is a test of this name in a suite, or in the Python program, of that name.
  func contain(_ suite: some StringProtocol, _ function: some StringProtocol) -> Bool {
    texts.contains { path, text in
      path.hasSuffix(".py")
        ? path.hasSuffix("/\(suite).py") && text.contains("def \(function)(")
        : text.contains("struct \(suite)") && text.contains("@Test") && text.contains("func \(function)(")
    }
  }
}
