#if canImport(FoundationEssentials)
  import FoundationEssentials
#else
  import Foundation
#endif

/// JSON for tools, in which every value has a form of its own: an integer has no fraction and no exponent, a number has one of them, and bytes are
/// `{"$bytes": "…"}` in Base64. An object whose one member is named `$bytes` or `$object` is written as `{"$object": …}`.
extension ServiceValue {
  /// The whole value in canonical JSON, in which every kind has a form of its own. Throws `invalidParams`
  /// when a number is not finite or the value breaks another rule.
  public func jsonText(limits: Limits = .default, root: String = "params") throws(ServicesError) -> String {
    try validate(limits: limits, root: root)
    return JSONWriter.text(of: marked)
  }

  /// Reads what ``jsonText(limits:root:)`` writes. Throws `invalidParams` with the line and column where the
  /// text is no JSON, or the path of what breaks a rule or exceeds a limit.
  public init(
    jsonText text: String, limits: Limits = .default, root: String = "params"
  ) throws(ServicesError) {
    do throws(Problem) {
      let plain = try JSONReader.read(Array(text.utf8), root: root)
      var path = ServicePath(root)
      self = try plain.unmarked(at: &path)
    } catch {
      throw error.error(.invalidParams)
    }
    try validate(limits: limits, root: root)
  }

  private static let bytesMark = "$bytes"
  private static let objectMark = "$object"

  /// As plain JSON can have it.
  var marked: ServiceValue {
    switch self {
    case .bytes(let bytes): return .object([Self.bytesMark: .string(Data(bytes).base64EncodedString())])
    case .array(let elements): return .array(elements.map(\.marked))
    case .object(let members):
      let object = ServiceValue.object(members.mapValues(\.marked))
      let isAmbiguous =
        members.count == 1 && members.keys.allSatisfy { $0 == Self.bytesMark || $0 == Self.objectMark }
      return isAmbiguous ? .object([Self.objectMark: object]) : object
    default: return self
    }
  }

  /// Of plain JSON.
  func unmarked(at path: inout ServicePath) throws(Problem) -> ServiceValue {
    switch self {
    case .array(let elements):
      var unmarked: [ServiceValue] = []
      for (i, element) in elements.enumerated() {
        path.steps.append(.index(i))
        unmarked.append(try element.unmarked(at: &path))
        path.steps.removeLast()
      }
      return .array(unmarked)
    case .object(let members):
      if members.count == 1, let content = members[Self.bytesMark] {
        guard case .string(let text) = content, let bytes = Data(base64Encoded: text) else {
          throw Problem(path: path.appending(.key(Self.bytesMark)), detail: "expected Base64 in a string")
        }
        return .bytes([UInt8](bytes))
      }
      if members.count == 1, let content = members[Self.objectMark] {
        guard case .object(let members) = content else {
          throw Problem(path: path.appending(.key(Self.objectMark)), detail: "expected an object")
        }
        return .object(try Self.unmarked(members, at: &path))
      }
      return .object(try Self.unmarked(members, at: &path))
    default: return self
    }
  }

  private static func unmarked(
    _ members: [String: ServiceValue], at path: inout ServicePath
  ) throws(Problem) -> [String: ServiceValue] {
    var unmarked: [String: ServiceValue] = [:]
    for key in members.keys.sorted(by: utf8Order) {
      path.steps.append(.key(key))
      unmarked[key] = try members[key]?.unmarked(at: &path)
      path.steps.removeLast()
    }
    return unmarked
  }
}
