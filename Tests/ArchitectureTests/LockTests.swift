import Foundation
import Testing

/// `Guarded` is used for what a `Mutex` would guard. To the thread sanitizer, what the standard library's `Mutex` guards looks like a race in
/// some runs and not in others.
struct LockTests {
  @Test(arguments: ["Sources", "Tests", "Examples", "Benchmarks/Sources", "Fuzzing/Sources"])
  func everyLockIsGuarded(folder: String) throws {
    let folder = SourceTree.package.appending(path: folder)
    let files = try FileManager.default.subpathsOfDirectory(atPath: folder.path)
      .filter { $0.hasSuffix(".swift") }
    #expect(!files.isEmpty)
    for file in files {
      let text = try String(contentsOf: folder.appending(path: file), encoding: .utf8)
      for line in Self.mutexes(in: text) {
        Issue.record("\(file):\(line) has a Mutex: use Guarded of the target Locks")
      }
    }
  }

  @Test(arguments: [
    ("let a = Mutex(1)", [1]), ("let a: Int\n\nlet b: Mutex<Int>", [3]),
    ("// Mutex(1)\nlet mutex = \"Mutex(1)\"", []), ("let a = Guarded(1)", []),
  ])
  func findsAMutexInCode(text: String, lines: [Int]) {
    #expect(Self.mutexes(in: text) == lines)
  }

  private static func mutexes(in text: String) -> [Int] {
    SwiftSource(text).lines(of: ["Mutex"])
  }
}
