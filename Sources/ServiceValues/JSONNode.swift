/// A value of a JSON text and its path, for readers of configuration that report the path of what is wrong.
package struct JSONNode {
  package let value: ServiceValue
  let path: ServicePath

  init(value: ServiceValue, path: ServicePath) { (self.value, self.path) = (value, path) }

  /// The whole text, strictly read. Its path is `root`.
  package init(json: [UInt8], root: String) throws(Problem) {
    self.init(value: try JSONReader.read(json, root: root), path: ServicePath(root))
  }

  package func problem(_ detail: String) -> Problem { Problem(path: path, detail: detail) }

  private func expected(_ kind: ServiceValue.Kind) -> Problem {
    problem("expected \(kind.rawValue), found \(value.kind.rawValue)")
  }

  package func string() throws(Problem) -> String {
    guard let text = value.stringValue else { throw expected(.string) }
    return text
  }

  package func boolean() throws(Problem) -> Bool {
    guard let flag = value.booleanValue else { throw expected(.boolean) }
    return flag
  }

  /// JSON has one kind of number only: 1.0 is an integer here.
  package func integer() throws(Problem) -> Int64 {
    if let integer = value.integerValue { return integer }
    guard case .number(let number) = value, let integer = Int64(exactly: number) else {
      throw expected(.integer)
    }
    return integer
  }

  package func count() throws(Problem) -> Int {
    guard let count = Int(exactly: try integer()), count >= 0 else { throw problem("expected 0 or more") }
    return count
  }

  package func elements() throws(Problem) -> [JSONNode] {
    guard let elements = value.arrayValue else { throw expected(.array) }
    return elements.enumerated().map { i, element in
      JSONNode(value: element, path: path.appending(.index(i)))
    }
  }

  /// In the order of the names, so that of several mistakes the same one is reported always.
  package func members() throws(Problem) -> [(name: String, node: JSONNode)] {
    guard let members = value.objectValue else { throw expected(.object) }
    return members.sorted { utf8Order($0.key, $1.key) }.map { name, value in
      (name, JSONNode(value: value, path: path.appending(.key(name))))
    }
  }

  /// Nil when it is not there. A null is there, and of a wrong type.
  package func member(_ name: String) throws(Problem) -> JSONNode? {
    guard let members = value.objectValue else { throw expected(.object) }
    return members[name].map { JSONNode(value: $0, path: path.appending(.key(name))) }
  }

  package func requiredMember(_ name: String) throws(Problem) -> JSONNode {
    guard let member = try member(name) else {
      throw Problem(path: path.appending(.key(name)), detail: "missing, and required")
    }
    return member
  }

  package func text(_ name: String) throws(Problem) -> String? { try member(name)?.string() }

  /// Throws for a member of another name.
  package func requireMembers(among names: Set<String>) throws(Problem) {
    for (name, node) in try members() where !names.contains(name) {
      throw node.problem("there is no such member")
    }
  }
}

extension ServiceValue {
  /// A whole JSON text as it stands. Throws `invalidParams` with the line and column where it is no JSON.
  package init(plainJSON text: [UInt8], root: String) throws(ServicesError) {
    do throws(Problem) {
      self = try JSONReader.read(text, root: root)
    } catch {
      throw error.error(.invalidParams)
    }
  }
}
