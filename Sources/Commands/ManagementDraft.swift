import AppRuntime
import Foundation
import ServiceValues

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

/// A management file while it is changed. Each change is a new decision, with the next serial.
struct ManagementDraft {
  private let path: String
  private var members: [String: ServiceValue]
  /// The last serial of a file that was lost.
  private let after: Int64

  /// Reads the file, or begins a new one. It may be one that no app would accept: that can be mended. The next serial is greater than
  /// `after`.
  init(at path: String, after: Int64 = 0) throws {
    (self.path, self.after) = (path, after)
    guard let text = try ManagementSource(path: path).read() else {
      members = ["version": 1, "serial": 0]
      return
    }
    members = try ServiceValue(plainJSON: [UInt8](text), root: "management").objectValue ?? [:]
  }

  /// The serial of what will be written.
  var nextSerial: Int64 {
    max(members["serial"]?.integerValue ?? 0, after).addingReportingOverflow(1).partialValue
  }

  /// Nil removes the member.
  subscript(name: String) -> ServiceValue? {
    get { members[name] }
    set { members[name] = newValue }
  }

  /// Checks the new decision and replaces the file as a whole: a runtime that reads meanwhile finds the old one or the new one.
  func write() throws -> ManagementFile {
    var members = members
    members["serial"] = .integer(nextSerial)
    members["version"] = members["version"] ?? 1
    let lines = members.sorted { $0.key < $1.key }.map { name, value in
      "  \(JSONWriter.text(of: .string(name))): \(JSONWriter.text(of: value))"
    }
    let text = Data("{\n\(lines.joined(separator: ",\n"))\n}\n".utf8)
    let file = try ManagementFile(text)
    try NativeFile.replace(path) { temporary in
      do {
        try text.write(to: URL(filePath: temporary), options: .withoutOverwriting)
      } catch {
        throw CommandError(.nativeFailed, path: path, detail: error.localizedDescription)
      }
      // Whoever the app belongs to reads it, too.
      guard chmod(temporary, 0o644) == 0 else { throw CommandError.native("chmod", path, errno) }
    }
    return file
  }
}
