/// Where in a value something is wrong: `params.to[3]`. Keys that are not plain are quoted: `params["a b"]`.
struct ServicePath: Sendable, Equatable {
  enum Step: Sendable, Equatable {
    case key(String)
    case index(Int)
  }

  var root: String
  var steps: [Step] = []

  /// Longest text in bytes. Keys are whatever the other side wrote, and the text goes into logs and messages.
  static let textByteCountMax = 512
  static let keyScalarCountMax = 64

  init(_ root: String) { self.root = root }

  func appending(_ step: Step) -> ServicePath {
    var path = self
    path.steps.append(step)
    return path
  }

  /// What does not fit is left out behind the root: the last steps say most.
  var text: String {
    var room = Self.textByteCountMax - root.utf8.count - 3
    var last: [String] = []
    for step in steps.reversed() {
      let text = Self.text(of: step)
      room -= text.utf8.count
      if room < 0 { return root + "…" + last.reversed().joined() }
      last.append(text)
    }
    return root + last.reversed().joined()
  }

  private static func text(of step: Step) -> String {
    switch step {
    case .index(let index): return "[\(index)]"
    case .key(let key):
      let isPlain = key.utf8.allSatisfy { byte in
        switch byte {
        case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
          UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "_"), UInt8(ascii: "-"):
          true
        default: false
        }
      }
      if isPlain && !key.isEmpty && key.utf8.count <= keyScalarCountMax { return "." + key }
      let scalars = key.unicodeScalars.prefix(keyScalarCountMax)
      let quoted = scalars.map { scalar in
        switch scalar.properties.generalCategory {
        case .control, .format, .lineSeparator, .paragraphSeparator, .unassigned, .privateUse:
          "\\u{\(String(scalar.value, radix: 16))}"
        default: scalar == "\"" || scalar == "\\" ? "\\\(scalar)" : "\(scalar)"
        }
      }
      let isWhole = scalars.endIndex == key.unicodeScalars.endIndex
      return "[\"" + quoted.joined() + (isWhole ? "\"]" : "…\"]")
    }
  }
}

/// What is wrong, before it is known which error of the table that is.
package struct Problem: Error {
  let path: ServicePath
  package let detail: String

  /// The path as text, `params.to[3]`.
  package var pathText: String { path.text }

  func error(_ code: ServicesError.Code) -> ServicesError {
    ServicesError(code, path: pathText, detail: detail)
  }
}
