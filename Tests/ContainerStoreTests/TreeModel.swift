/// A file tree as a plain dictionary, with the rules of each operation spelt out once more and simply.
struct TreeModel: Equatable {
  struct Node: Equatable {
    /// Nil for directories and links.
    var contents: [UInt8]?
    /// Where a symbolic link leads.
    var target: String?
    var permissions: UInt16
    /// Where it was set, in nanoseconds since 1970.
    var created: Int64?
    var attributes: [String: [UInt8]] = [:]
    /// The same for all names of one file; nil for a file with one name.
    var group: UInt64?
  }

  /// By paths without links in them.
  private(set) var nodes: [String: Node] = [:]
  private var lastGroup: UInt64 = 0
  var delivery = DeliveryModel()

  private enum Kind {
    case file, directory, link
  }

  private func kind(_ path: String) -> Kind? {
    if path.isEmpty { return .directory }
    guard let node = nodes[path] else { return nil }
    return node.target != nil ? .link : node.contents == nil ? .directory : .file
  }

  private static func parent(_ path: String) -> String { String(path[..<path.lastIndex(of: "/")!]) }

  private func below(_ path: String) -> [String] { nodes.keys.filter { $0.hasPrefix(path + "/") } }

  /// Whether one is the other or is in it.
  private static func contains(_ outer: String, _ inner: String) -> Bool {
    (inner + "/").hasPrefix(outer + "/")
  }

  mutating func put(_ node: Node, at path: String) { nodes[path] = node }

  /// The other names of a file with several, and its own.
  private func names(_ path: String) -> [String] {
    guard let group = nodes[path]?.group else { return [path] }
    return nodes.keys.filter { nodes[$0]!.group == group }.sorted()
  }

  /// The path without links and `..` (empty: the root); nil when it cannot be walked.
  private func resolved(_ path: String, followingLast: Bool = true) -> String? {
    var reached = ""
    var pending = Array(path.split(separator: "/").reversed())
    var linkCount = 0
    while let part = pending.popLast() {
      guard kind(reached) == .directory else { return nil }
      if part == ".." {
        reached = reached.isEmpty ? "" : Self.parent(reached)
        continue
      }
      let next = reached + "/" + part
      guard kind(next) != nil else {
        return pending.contains("..") ? nil : ([Substring(next)] + pending.reversed()).joined(separator: "/")
      }
      guard let target = nodes[next]!.target, followingLast || !pending.isEmpty else {
        reached = next
        continue
      }
      linkCount += 1
      if linkCount > 40 { return nil }
      if target.hasPrefix("/") { reached = "" }
      pending += target.split(separator: "/").reversed()
    }
    return reached
  }

  /// What is at a path; nil when nothing is. The root is not told of.
  func node(_ path: String) -> Node? { resolved(path).flatMap { nodes[$0] } }

  private mutating func change(_ path: String, _ body: (inout Node) -> Void) {
    for name in names(path) where nodes[name] != nil { body(&nodes[name]!) }
  }

  // Each returns whether the operation must succeed, and then has done it.

  mutating func write(_ bytes: [UInt8], to path: String) -> Bool {
    guard let path = resolved(path), kind(path) != .directory, kind(Self.parent(path)) == .directory
    else { return false }
    nodes[path] = Node(contents: bytes, permissions: 0o600)
    return true
  }

  /// To the file itself, whatever its names.
  mutating func append(_ bytes: [UInt8], to path: String) -> Bool {
    guard let path = resolved(path), kind(path) == .file else { return false }
    change(path) { $0.contents! += bytes }
    return true
  }

  /// What is missing before the offset is zeros.
  mutating func overwrite(_ bytes: [UInt8], at offset: Int, _ path: String) -> Bool {
    guard let path = resolved(path), kind(path) == .file else { return false }
    change(path) {
      let missing = max(0, offset + bytes.count - $0.contents!.count)
      $0.contents! += [UInt8](repeating: 0, count: missing)
      $0.contents!.replaceSubrange(offset..<(offset + bytes.count), with: bytes)
    }
    return true
  }

  mutating func makeDirectory(_ path: String, withIntermediates: Bool) -> Bool {
    guard let path = resolved(path, followingLast: withIntermediates) else { return false }
    if withIntermediates { return makeDirectories(path, permissions: 0o700) }
    guard kind(Self.parent(path)) == .directory, kind(path) == nil else { return false }
    nodes[path] = Node(permissions: 0o700)
    return true
  }

  /// Of a path without links.
  private mutating func makeDirectories(_ path: String, permissions: UInt16) -> Bool {
    var missing: [String] = []
    var current = path
    while !current.isEmpty {
      if let kind = kind(current), kind != .directory { return false }
      if kind(current) == nil { missing.append(current) }
      current = Self.parent(current)
    }
    for made in missing { nodes[made] = Node(permissions: made == path ? permissions : 0o700) }
    return true
  }

  mutating func makeSymbolicLink(_ path: String, to target: String) -> Bool {
    guard let path = freePlace(path) else { return false }
    nodes[path] = Node(target: target, permissions: 0o777)
    return true
  }

  mutating func makeLink(_ path: String, to existing: String) -> Bool {
    guard let existing = resolved(existing, followingLast: false), let kind = kind(existing),
      kind != .directory, let path = freePlace(path)
    else { return false }
    if nodes[existing]!.group == nil {
      lastGroup += 1
      nodes[existing]!.group = lastGroup
    }
    nodes[path] = nodes[existing]
    return true
  }

  private func freePlace(_ path: String) -> String? {
    guard let path = resolved(path, followingLast: false), kind(path) == nil,
      kind(Self.parent(path)) == .directory
    else { return nil }
    return path
  }

  mutating func remove(_ path: String, recursively: Bool) -> Bool {
    guard let path = resolved(path, followingLast: false), kind(path) != nil,
      recursively || below(path).isEmpty
    else { return false }
    removeAll(path)
    return true
  }

  private mutating func removeAll(_ path: String) {
    for gone in below(path) + [path] { nodes[gone] = nil }
  }

  /// With everything below it.
  private mutating func rename(_ from: String, to: String) {
    for old in below(from) + [from] where from != to {
      nodes[to + old.dropFirst(from.count)] = nodes.removeValue(forKey: old)
    }
  }

  mutating func move(_ from: String, to: String, replacing: Bool) -> Bool {
    guard let from = resolved(from, followingLast: false), let to = resolved(to, followingLast: false),
      mayTransplant(from, to: to, replacing: replacing)
    else { return false }
    rename(from, to: to)
    return true
  }

  mutating func copy(_ from: String, to: String, replacing: Bool) -> Bool {
    guard let from = resolved(from, followingLast: false), let to = resolved(to, followingLast: replacing),
      from != to, !to.isEmpty, !names(from).contains(to), mayTransplant(from, to: to, replacing: replacing)
    else { return false }
    for old in below(from) + [from] {
      var copy = nodes[old]!
      copy.created = nil
      copy.group = nil
      // A link has the permissions of all links.
      if copy.target != nil { copy.permissions = 0o777 }
      nodes[to + old.dropFirst(from.count)] = copy
    }
    return true
  }

  private func mayTransplant(_ from: String, to: String, replacing: Bool) -> Bool {
    guard let source = kind(from), kind(Self.parent(to)) == .directory else { return false }
    if source == .directory, from != to, Self.contains(from, to) { return false }
    guard from != to, let existing = kind(to) else { return true }
    return replacing && existing != .directory && source != .directory
  }

  mutating func replace(_ path: String, with new: String, backup: String?, keepsMetadata: Bool) -> Bool {
    guard let path = resolved(path, followingLast: false), let new = resolved(new, followingLast: false),
      kind(path) != nil, kind(new) != nil
    else { return false }
    if path == new { return true }
    if Self.contains(path, new) || Self.contains(new, path) { return false }
    let old = nodes[path]!
    if let backup = backup.map({ Self.parent(path) + "/" + $0 }) {
      if kind(backup) != nil { return false }
      rename(path, to: backup)
    } else {
      removeAll(path)
    }
    rename(new, to: path)
    if keepsMetadata {
      change(path) {
        $0.permissions = old.permissions
        $0.created = old.created
      }
    }
    return true
  }

  mutating func setAttributes(_ path: String, created: Int64, permissions: UInt16) -> Bool {
    guard let path = resolved(path), kind(path) != nil else { return false }
    change(path) {
      $0.created = created
      $0.permissions = permissions
    }
    return true
  }

  mutating func setExtendedAttributes(
    _ changes: [String: [UInt8]?], at path: String, followingLinks: Bool
  ) -> Bool {
    guard let path = resolved(path, followingLast: followingLinks), kind(path) != nil else { return false }
    change(path) { for (name, value) in changes { $0.attributes[name] = value } }
    return true
  }

  /// A native tree, by paths that begin with a slash ("" is its top), laid over what is at the destination.
  mutating func importTree(_ tree: [String: Node], to path: String) -> Bool {
    guard let path = resolved(path) else { return false }
    var new = self
    for (below, node) in tree.sorted(by: { $0.key < $1.key }) {
      let place = path + below
      if node.contents == nil, node.target == nil {
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

  /// Whether `path` can be sent to another container: links at its end are followed, and below it there are none.
  func maySend(_ path: String) -> Bool {
    guard resolved(path, followingLast: false) != nil, let found = resolved(path), kind(found) != nil
    else { return false }
    return below(found).allSatisfy { kind($0) != .link }
  }

  /// Whether it is, or leads to, the whole tree.
  func isRoot(_ path: String) -> Bool { resolved(path) == "" }

  /// A message with one file or directory of another container in it, under the name that it was sent by.
  mutating func receive(_ path: String, from sender: TreeModel, into directory: String) {
    let place = sender.resolved(path, followingLast: false)!
    let found = sender.resolved(path)!
    _ = makeDirectories(directory + Self.parent(place), permissions: 0o700)
    for source in sender.below(found) + [found] {
      var node = sender.nodes[source]!
      if node.contents == nil { node.permissions = 0o700 }
      node.created = nil
      node.group = nil
      node.attributes = [:]
      nodes[directory + place + source.dropFirst(found.count)] = node
    }
  }

  /// The files that a message gets by this path; nil when it cannot be sent.
  func attachedFiles(_ path: String) -> [String: [UInt8]]? {
    guard maySend(path), let place = resolved(path, followingLast: false), let found = resolved(path) else {
      return nil
    }
    var files: [String: [UInt8]] = [:]
    for source in below(found) + [found] {
      if let contents = nodes[source]?.contents { files[place + source.dropFirst(found.count)] = contents }
    }
    return files
  }

  /// Everything that a commit makes visible.
  mutating func arrive(_ parcel: Parcel, in directory: String) {
    for (path, contents) in parcel.files {
      _ = makeDirectories(Self.parent(directory + path), permissions: 0o700)
      nodes[directory + path] = Node(contents: contents, permissions: 0o640)
    }
  }

  /// Why what a container shows is something else; nil when it is this.
  func difference(from shown: TreeModel) -> String? {
    if let difference = delivery.difference(from: shown.delivery) { return difference }
    for path in Set(nodes.keys).union(shown.nodes.keys).sorted() {
      guard let mine = nodes[path] else { return "\(path) should not be there" }
      guard let other = shown.nodes[path] else { return "\(path) is missing" }
      if mine.contents != other.contents {
        return
          "\(path) has other contents: \(other.contents?.count ?? -1), expected \(mine.contents?.count ?? -1)"
      }
      if mine.target != other.target {
        return "\(path) leads to \(other.target ?? "nothing"), expected \(mine.target ?? "nothing")"
      }
      if mine.permissions != other.permissions {
        return
          "\(path) has permissions \(String(other.permissions, radix: 8)), expected \(String(mine.permissions, radix: 8))"
      }
      if mine.attributes != other.attributes {
        return
          "\(path) has attributes \(other.attributes.keys.sorted()), expected \(mine.attributes.keys.sorted())"
      }
      if names(path) != shown.names(path) {
        return "\(path) is one file with \(shown.names(path)), expected \(names(path))"
      }
      if let created = mine.created, created != other.created { return "\(path) has another date" }
    }
    return nil
  }
}
