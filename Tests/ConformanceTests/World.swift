import Foundation

/// A place in which a case runs: a file manager and a folder of its own, empty at first.
///
/// A case calls ``manager`` and writes what it got into the transcript, step by step. Its paths stand below ``root``, which the
/// transcript calls `ROOT`, so that the transcripts of two worlds can be compared.
class World {
  let name: String
  /// Without a slash at its end, and without symbolic links.
  let root: String
  private(set) var manager: any FileManaging
  private(set) var transcript = Transcript()

  init(name: String, root: String, manager: any FileManaging) {
    self.name = name
    self.root = root
    self.manager = manager
  }

  func use(_ manager: any FileManaging) { self.manager = manager }

  enum Access: CaseIterable { case reading, writing, updating }

  func url(_ path: String, isDirectory: Bool = false) -> URL { fatalError("\(name) has no URLs") }
  func handle(_ access: Access, atPath path: String) -> (any FileHandling)? { nil }
  func handle(_ access: Access, at url: URL) throws -> any FileHandling {
    fatalError("\(name) has no handles")
  }
  func inputStream(atPath path: String) -> InputStream? { nil }
  func inputStream(at url: URL) -> InputStream? { nil }
  func outputStream(atPath path: String, append: Bool) -> OutputStream? { nil }
  func outputStream(at url: URL, append: Bool) -> OutputStream? { nil }
  func resourceValues(_ keys: Set<URLResourceKey>, at url: URL) throws -> [URLResourceKey: Any] {
    fatalError("\(name) has no resource values")
  }
  func setDelegate(_ delegate: RecordingDelegate?) {}
  /// A manager of its own, with the working directory that a new one has.
  func anotherManager() -> any FileManaging { manager }
  /// Stores everything and begins anew, where that is possible. No handle may be open.
  func reopen() throws {}

  // MARK: For the cases

  /// An absolute path below the root; `""` is the root itself.
  func path(_ relative: String) -> String { relative.isEmpty ? root : root + "/" + relative }

  /// Records what the step gives, or its error.
  func step(_ label: String, _ body: () throws -> Any?) {
    do {
      transcript.add(label, text(try body()))
    } catch {
      record(error, label)
    }
  }

  func note(_ label: String, _ value: Any?) { transcript.add(label, text(value)) }

  private func record(_ error: any Error, _ label: String) {
    let (code, details) = describe(error)
    transcript.add(label, code)
    transcript.add(label + ", error", details)
  }

  /// What `catch` sees first, and the path and the cause in the `userInfo`; the case `what errors hold` has the rest.
  func describe(_ error: any Error) -> (code: String, details: String) {
    let code: String
    if let error = error as? CocoaError {
      code = "CocoaError \(error.code.rawValue)"
    } else if let error = error as? POSIXError {
      code = "POSIXError \(error.code.rawValue)"
    } else {
      let error = error as NSError
      code = "\(error.domain) \(error.code)"
    }
    let info = (error as NSError).userInfo
    var details: [String] = []
    if let path = info[NSFilePathErrorKey] { details.append("path \(text(path))") }
    if let cause = info[NSUnderlyingErrorKey] as? any Error {
      let cause = cause as NSError
      if cause.domain == NSPOSIXErrorDomain { details.append("POSIX \(cause.code)") }
    }
    return (code, details.isEmpty ? "nothing more" : details.joined(separator: ", "))
  }

  func text(_ value: Any?) -> String {
    switch value {
    case nil: return "nil"
    case is Void: return "ok"
    // A number 1 can be read as true, and true as 1.
    case let value? where Swift.type(of: value) == Bool.self: return "\(value)"
    case let value as Data: return text(data: value)
    case let value as String: return text(path: value)
    case let value as URL: return text(url: value)
    case let value as [String]: return "[" + value.map(text(path:)).joined(separator: ", ") + "]"
    case let value as [URL]: return "[" + value.map(text(url:)).joined(separator: ", ") + "]"
    case let value as Date: return "date \(value.timeIntervalSince1970)"
    case let value as FileAttributeType: return value.rawValue
    case let value as NSNumber: return "\(value)"
    case let value?:
      let mirror = Mirror(reflecting: value)
      if mirror.displayStyle == .optional {
        return mirror.children.first.map { text($0.value) } ?? "nil"
      }
      return text(path: "\(value)")
    }
  }

  private func text(path: String) -> String {
    let place = path.replacingOccurrences(of: root, with: "ROOT")
    let isLong = place.utf8.count > 120
    return isLong ? "\(place.utf8.count) bytes that begin with \(place.prefix(12))" : "\"\(place)\""
  }

  /// The slash at the end is what tells a directory; the scheme differs between worlds by design.
  private func text(url: URL) -> String {
    text(path: url.absoluteURL.path(percentEncoded: false))
  }

  private func text(data: Data) -> String {
    if data.count <= 40, let string = String(data: data, encoding: .utf8),
      string.allSatisfy({ $0.isASCII && !$0.isNewline }),
      !string.contains("\0")
    {
      return "data '\(string)'"
    }
    let hash = data.withUnsafeBytes { (bytes: UnsafeRawBufferPointer) -> UInt64 in
      // Without optimization this is much faster than `reduce`.
      var (hash, i) = (UInt64(14_695_981_039_346_656_037), 0)
      while i < bytes.count {
        hash = (hash ^ UInt64(bytes[i])) &* 1_099_511_628_211
        i += 1
      }
      return hash
    }
    return "\(data.count) bytes, \(String(hash, radix: 16))"
  }
}

/// What a case saw, step by step.
struct Transcript: Codable, Equatable {
  struct Entry: Codable, Equatable {
    let step: String
    let value: String
  }
  private(set) var entries: [Entry] = []

  /// A second step of the same name would hide the first.
  mutating func add(_ step: String, _ value: String) {
    precondition(!entries.contains { $0.step == step }, "the step \(step) is there twice")
    entries.append(Entry(step: step, value: value))
  }
}
