import Foundation
import Locks

/// Writes down what it is asked, and answers as it was told. It has the forms with URLs, too, because Foundation on Linux demands
/// some of them.
final class RecordingDelegate: FileManagerDelegate {
  struct Answers: Sendable {
    /// Names of items that are refused.
    var refused: Set<String> = []
    var proceeds = false
  }
  private let answers: Answers
  private let calls = Guarded<[String]>([])

  init(refusing refused: Set<String> = [], proceeds: Bool = false) {
    answers = Answers(refused: refused, proceeds: proceeds)
  }

  /// What was asked since the last time, in its order.
  func takeCalls() -> [String] {
    calls.withLock { calls in
      defer { calls = [] }
      return calls
    }
  }

  func should(_ verb: String, _ source: String, _ destination: String? = nil) -> Bool {
    let line = "\(verb) \(source)" + (destination.map { " to \($0)" } ?? "")
    calls.withLock { $0.append(line) }
    return !answers.refused.contains((source as NSString).lastPathComponent)
  }

  func proceeds(
    _ verb: String, _ error: any Error, _ source: String, _ destination: String? = nil
  ) -> Bool {
    let code = (error as? CocoaError).map { "CocoaError \($0.code.rawValue)" } ?? "\(type(of: error))"
    let line = "\(code) \(verb) \(source)" + (destination.map { " to \($0)" } ?? "")
    calls.withLock { $0.append(line) }
    return answers.proceeds
  }

  func fileManager(_ files: FileManager, shouldCopyItemAtPath from: String, toPath to: String) -> Bool {
    should("copy", from, to)
  }
  func fileManager(_ files: FileManager, shouldCopyItemAt from: URL, to: URL) -> Bool {
    should("copy", from.path, to.path)
  }
  func fileManager(
    _ files: FileManager, shouldProceedAfterError error: any Error, copyingItemAtPath from: String,
    toPath to: String
  ) -> Bool {
    proceeds("copying", error, from, to)
  }
  func fileManager(
    _ files: FileManager, shouldProceedAfterError error: any Error, copyingItemAt from: URL, to: URL
  ) -> Bool {
    proceeds("copying", error, from.path, to.path)
  }
  func fileManager(_ files: FileManager, shouldMoveItemAtPath from: String, toPath to: String) -> Bool {
    should("move", from, to)
  }
  func fileManager(_ files: FileManager, shouldMoveItemAt from: URL, to: URL) -> Bool {
    should("move", from.path, to.path)
  }
  func fileManager(
    _ files: FileManager, shouldProceedAfterError error: any Error, movingItemAtPath from: String,
    toPath to: String
  ) -> Bool {
    proceeds("moving", error, from, to)
  }
  func fileManager(
    _ files: FileManager, shouldProceedAfterError error: any Error, movingItemAt from: URL, to: URL
  ) -> Bool {
    proceeds("moving", error, from.path, to.path)
  }
  func fileManager(_ files: FileManager, shouldLinkItemAtPath from: String, toPath to: String) -> Bool {
    should("link", from, to)
  }
  func fileManager(_ files: FileManager, shouldLinkItemAt from: URL, to: URL) -> Bool {
    should("link", from.path, to.path)
  }
  func fileManager(
    _ files: FileManager, shouldProceedAfterError error: any Error, linkingItemAtPath from: String,
    toPath to: String
  ) -> Bool {
    proceeds("linking", error, from, to)
  }
  func fileManager(
    _ files: FileManager, shouldProceedAfterError error: any Error, linkingItemAt from: URL, to: URL
  ) -> Bool {
    proceeds("linking", error, from.path, to.path)
  }
  func fileManager(_ files: FileManager, shouldRemoveItemAtPath path: String) -> Bool {
    should("remove", path)
  }
  func fileManager(_ files: FileManager, shouldRemoveItemAt url: URL) -> Bool {
    should("remove", url.path)
  }
  func fileManager(
    _ files: FileManager, shouldProceedAfterError error: any Error, removingItemAtPath path: String
  ) -> Bool {
    proceeds("removing", error, path)
  }
  func fileManager(
    _ files: FileManager, shouldProceedAfterError error: any Error, removingItemAt url: URL
  ) -> Bool {
    proceeds("removing", error, url.path)
  }
}
