/// A file tree as a plain dictionary, with the rules of each operation spelt out once more and simply.
struct TreeModel: Equatable {
  struct Node: Equatable {
    /// Nil for directories.
    var contents: [UInt8]?
    var permissions: UInt16
    /// Where it was set, in nanoseconds since 1970.
    var created: Int64?
  }

  private(set) var nodes: [String: Node] = [:]

  private enum Kind {
    case file, directory
  }

  private func kind(_ path: String) -> Kind? {
    if path.isEmpty { return .directory }
    guard let node = nodes[path] else { return nil }
    return node.contents == nil ? .directory : .file
  }

  private static func parent(_ path: String) -> String { String(path[..<path.lastIndex(of: "/")!]) }

  private func below(_ path: String) -> [String] { nodes.keys.filter { $0.hasPrefix(path + "/") } }

  mutating func put(_ node: Node, at path: String) { nodes[path] = node }

  // Each returns whether the operation must succeed, and then has done it.

  mutating func write(_ bytes: [UInt8], to path: String) -> Bool {
    guard kind(Self.parent(path)) == .directory, kind(path) != .directory else { return false }
    nodes[path] = Node(contents: bytes, permissions: 0o600)
    return true
  }

  mutating func makeDirectory(_ path: String, withIntermediates: Bool) -> Bool {
    if withIntermediates { return makeDirectories(path, permissions: 0o700) }
    guard kind(Self.parent(path)) == .directory, kind(path) == nil else { return false }
    nodes[path] = Node(permissions: 0o700)
    return true
  }

  private mutating func makeDirectories(_ path: String, permissions: UInt16) -> Bool {
    var missing: [String] = []
    var current = path
    while !current.isEmpty {
      if kind(current) == .file { return false }
      if kind(current) == nil { missing.append(current) }
      current = Self.parent(current)
    }
    for made in missing { nodes[made] = Node(permissions: made == path ? permissions : 0o700) }
    return true
  }

  mutating func remove(_ path: String, recursively: Bool) -> Bool {
    guard kind(path) != nil, recursively || below(path).isEmpty else { return false }
    for gone in below(path) + [path] { nodes[gone] = nil }
    return true
  }

  mutating func move(_ from: String, to: String, replacing: Bool) -> Bool {
    guard mayTransplant(from, to: to, replacing: replacing) else { return false }
    for old in below(from) + [from] where from != to {
      nodes[to + old.dropFirst(from.count)] = nodes.removeValue(forKey: old)
    }
    return true
  }

  mutating func copy(_ from: String, to: String, replacing: Bool) -> Bool {
    guard from != to, mayTransplant(from, to: to, replacing: replacing) else { return false }
    for old in below(from) + [from] {
      nodes[to + old.dropFirst(from.count)] = nodes[old]!
      nodes[to + old.dropFirst(from.count)]!.created = nil
    }
    return true
  }

  private func mayTransplant(_ from: String, to: String, replacing: Bool) -> Bool {
    guard let source = kind(from), kind(Self.parent(to)) == .directory else { return false }
    if source == .directory, to.hasPrefix(from + "/") { return false }
    guard from != to, let existing = kind(to) else { return true }
    return replacing && existing == .file && source == .file
  }

  mutating func setAttributes(_ path: String, created: Int64, permissions: UInt16) -> Bool {
    guard kind(path) != nil else { return false }
    nodes[path]!.created = created
    nodes[path]!.permissions = permissions
    return true
  }

  /// A native tree, by paths that begin with a slash ("" is its top), laid over what is at the destination.
  mutating func importTree(_ tree: [String: Node], to path: String) -> Bool {
    var new = self
    for (below, node) in tree.sorted(by: { $0.key < $1.key }) {
      let place = path + below
      if node.contents == nil {
        guard new.makeDirectories(place, permissions: node.permissions) else { return false }
      } else {
        guard new.makeDirectories(Self.parent(place), permissions: 0o700), new.kind(place) != .directory
        else { return false }
        new.nodes[place] = node
      }
    }
    self = new
    return true
  }

  /// A message with one file or directory of another container in it.
  mutating func receive(_ path: String, from sender: TreeModel, into directory: String) {
    _ = makeDirectories(directory + Self.parent(path), permissions: 0o700)
    for source in sender.below(path) + [path] {
      var node = sender.nodes[source]!
      if node.contents == nil { node.permissions = 0o700 }
      node.created = nil
      nodes[directory + source] = node
    }
  }

  /// Why what a container shows is something else; nil when it is this.
  func difference(from shown: TreeModel) -> String? {
    for path in Set(nodes.keys).union(shown.nodes.keys).sorted() {
      guard let mine = nodes[path] else { return "\(path) should not be there" }
      guard let other = shown.nodes[path] else { return "\(path) is missing" }
      if mine.contents != other.contents {
        return
          "\(path) has other contents: \(other.contents?.count ?? -1), expected \(mine.contents?.count ?? -1)"
      }
      if mine.permissions != other.permissions {
        return
          "\(path) has permissions \(String(other.permissions, radix: 8)), expected \(String(mine.permissions, radix: 8))"
      }
      if let created = mine.created, created != other.created { return "\(path) has another date" }
    }
    return nil
  }
}
