import Foundation
import Testing

/// Steps that both worlds go through.
struct Case: Sendable, CustomTestStringConvertible {
  let name: String
  /// Foundation's working directory is the process's: such a case runs in a process of its own there.
  var changesWorkingDirectory = false
  let run: @Sendable (World) throws -> Void

  var testDescription: String { name }

  static let all: [Case] =
    files + directories + enumerators + attributes + links + paths + items + errors + equality + replacement
    + delegates
    + workingDirectory + locations + handles + streams

  static func named(_ name: String) -> Case? { all.first { $0.name == name } }
}

struct CannotSetUp: Error, CustomStringConvertible {
  let description: String
}

/// What stands before the last slash of a relative path; empty when there is none.
func parent(of path: String) -> String {
  path.lastIndex(of: "/").map { String(path[..<$0]) } ?? ""
}

// What cases need before the steps they record.
extension World {
  func make(_ path: String, _ contents: String = "") throws {
    guard manager.createFile(atPath: self.path(path), contents: Data(contents.utf8), attributes: nil) else {
      throw CannotSetUp(description: "\(name) cannot create \(path)")
    }
  }

  func makeDirectory(_ path: String) throws {
    try manager.createDirectory(
      atPath: self.path(path), withIntermediateDirectories: true, attributes: nil)
  }

  func makeLink(_ path: String, to target: String) throws {
    try manager.createSymbolicLink(atPath: self.path(path), withDestinationPath: target)
  }

  /// Directory `d` with the files `a` and `h`, which is hidden, a directory `s` with `b` and a link to `a`, an empty directory `e`.
  func makeTree(_ directory: String = "d") throws {
    try makeDirectory(directory + "/s")
    try makeDirectory(directory + "/e")
    try makeDirectory(directory + "/.hidden")
    try make(directory + "/a", "aaa")
    try make(directory + "/.h", "h")
    try make(directory + "/.hidden/inside", "i")
    try make(directory + "/s/b", "bb")
    try makeLink(directory + "/s/link", to: "../a")
  }

  /// The steps behind this work in that directory, and must not in another.
  func enter(_ path: String) throws {
    guard manager.changeCurrentDirectoryPath(self.path(path)) else {
      throw CannotSetUp(description: "\(name) cannot enter \(path)")
    }
  }

  func contents(_ path: String) -> Data? { manager.contents(atPath: self.path(path)) }

  func permissions(_ path: String) throws -> String {
    let value = try manager.attributesOfItem(atPath: self.path(path))[.posixPermissions] as? NSNumber
    return value.map { String($0.intValue, radix: 8) } ?? "none"
  }

  func type(_ path: String) throws -> FileAttributeType? {
    try manager.attributesOfItem(atPath: self.path(path))[.type] as? FileAttributeType
  }

  /// Everything below a directory, a line each: its path, and what it holds.
  func tree(_ directory: String = "") throws -> [String] {
    try manager.contentsOfDirectory(atPath: path(directory)).sorted().flatMap { name -> [String] in
      let place = directory.isEmpty ? name : directory + "/" + name
      switch try type(place) {
      case .typeDirectory?: return [place + "/"] + (try tree(place))
      case .typeSymbolicLink?:
        return [place + " -> " + (try manager.destinationOfSymbolicLink(atPath: path(place)))]
      default: return [place + " = " + text(contents(place))]
      }
    }
  }
}
