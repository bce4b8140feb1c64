import ContainerStore
import Testing

/// Paths that only changes keep up, each of which has to fit.
struct TreeMirror {
  let top: String
  private(set) var paths: Set<String>

  init(of top: String, paths: Set<String>) {
    self.top = top
    self.paths = paths
  }

  private func hasParent(_ path: String) -> Bool {
    if path == top { return true }
    let parent = String(path[..<path.lastIndex(of: "/")!])
    return paths.contains(parent.isEmpty ? "/" : parent)
  }

  mutating func apply(_ change: ContainerChange) {
    switch change {
    case .created(let path):
      #expect(paths.insert(path).inserted && hasParent(path), "\(change)")
    case .removed(let path):
      #expect(paths.remove(path) != nil, "\(change)")
      paths = paths.filter { !$0.hasPrefix(path + "/") }
    case .moved(let from, let to):
      #expect(paths.contains(from) && !paths.contains(to) && hasParent(to), "\(change)")
      for old in paths.filter({ $0 == from || $0.hasPrefix(from + "/") }) {
        paths.remove(old)
        paths.insert(to + old.dropFirst(from.count))
      }
    case .changed(let path), .attributesChanged(let path):
      #expect(paths.contains(path), "\(change)")
    case .overflowed: Issue.record("overflowed")
    }
  }
}
