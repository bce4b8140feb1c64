import Foundation

/// How an enumerator's item stands in the transcript, independent of the order in which a directory gives its names.
private func found(
  _ enumerator: (any DirectoryEnumerating)?, in w: World, skipping: (String) -> Bool = { _ in false }
) -> [String]? {
  guard let enumerator else { return nil }
  var names: [String] = []
  while let item = enumerator.nextObject() {
    let name = (item as? String) ?? (item as? URL).map { w.text($0) } ?? "neither text nor URL"
    names.append("\(enumerator.level) \(name)")
    if skipping(name) { enumerator.skipDescendants() }
  }
  return names.sorted()
}

extension Case {
  static let enumerators: [Case] = [
    Case(name: "enumerator by path") { w in
      let m = w.manager
      try w.makeTree()
      try w.makeLink("toD", to: "d")
      try w.makeLink("d/toS", to: "s")
      for name in ["d", "d/", "toD", "toD/", "d/e", "missing", "d/a"] {
        w.step("of \(name)") { found(m.enumerator(atPath: w.path(name)), in: w) }
      }
      w.step("of nothing") { found(m.enumerator(atPath: ""), in: w) }
      w.step("skipping s") { found(m.enumerator(atPath: w.path("d")), in: w) { $0 == "s" } }
      w.step("skipping at a file") { found(m.enumerator(atPath: w.path("d")), in: w) { $0 == "s/b" }?.count }
      w.step("attributes of items") {
        guard let enumerator = m.enumerator(atPath: w.path("d")) else { return "no enumerator" }
        var names: [String] = []
        while let item = enumerator.nextObject() as? String {
          let attributes = enumerator.fileAttributes
          let type = attributes?[.type] as? FileAttributeType
          let size = type == .typeRegular ? " " + w.text(attributes?[.size]) : ""
          names.append("\(item) \(w.text(type))\(size)")
        }
        return names.sorted()
      }
      w.step("attributes of the directory") {
        w.text(m.enumerator(atPath: w.path("d"))?.directoryAttributes?[.type])
      }
      w.step("attributes before the first") { m.enumerator(atPath: w.path("d"))?.fileAttributes == nil }
      w.step("level before the first") { m.enumerator(atPath: w.path("d"))?.level }
      w.step("after the last") {
        let enumerator = m.enumerator(atPath: w.path("d/e"))
        return [w.text(enumerator?.nextObject()), w.text(enumerator?.nextObject())]
      }
      w.step("parents come before children") {
        guard let enumerator = m.enumerator(atPath: w.path("d")) else { return nil }
        var seen: Set<String> = [""]
        while let item = enumerator.nextObject() as? String {
          if !seen.contains(parent(of: item)) { return false }
          seen.insert(item)
        }
        return true
      }
    },
    Case(name: "enumerator by URL") { w in
      let m = w.manager
      try w.makeTree()
      try w.makeDirectory("d/p.app/inner")
      try w.make("d/p.app/x", "x")
      try w.makeLink("toD", to: "d")
      try w.makeLink("d/toS", to: "s")
      let options: [(String, FileManager.DirectoryEnumerationOptions)] = [
        ("nothing", []), ("skipsHiddenFiles", .skipsHiddenFiles),
        ("skipsSubdirectoryDescendants", .skipsSubdirectoryDescendants),
        ("skipsPackageDescendants", .skipsPackageDescendants),
        ("includesDirectoriesPostOrder", .includesDirectoriesPostOrder),
        ("hidden and descendants", [.skipsHiddenFiles, .skipsSubdirectoryDescendants]),
      ]
      for (name, option) in options {
        w.step(name) {
          found(
            m.enumerator(
              at: w.url("d", isDirectory: true), includingPropertiesForKeys: nil, options: option,
              errorHandler: nil),
            in: w)
        }
      }
      w.step("producesRelativePathURLs") {
        guard
          let enumerator = m.enumerator(
            at: w.url("d", isDirectory: true), includingPropertiesForKeys: nil,
            options: .producesRelativePathURLs,
            errorHandler: nil)
        else { return nil }
        var names: [String] = []
        while let url = enumerator.nextObject() as? URL { names.append(url.relativePath) }
        return names.sorted()
      }
      w.step("skipping s") {
        found(
          m.enumerator(
            at: w.url("d", isDirectory: true), includingPropertiesForKeys: nil, options: [], errorHandler: nil
          ), in: w
        ) { $0.hasSuffix("/s/\"") }
      }
      w.step("URL without a slash") {
        found(
          m.enumerator(
            at: w.url("d/s", isDirectory: false), includingPropertiesForKeys: nil, options: [],
            errorHandler: nil), in: w)
      }
      w.step("through a link") {
        found(
          m.enumerator(
            at: w.url("toD", isDirectory: true), includingPropertiesForKeys: nil, options: [],
            errorHandler: nil), in: w)
      }
      w.step("of a file") {
        found(
          m.enumerator(at: w.url("d/a"), includingPropertiesForKeys: nil, options: [], errorHandler: nil),
          in: w)
      }
      for answer in [true, false] {
        w.step("missing, with a handler that says \(answer)") {
          var seen: [String] = []
          let enumerator = m.enumerator(
            at: w.url("missing", isDirectory: true), includingPropertiesForKeys: nil, options: []
          ) {
            seen.append(w.text($0) + " " + w.describe($1).code)
            return answer
          }
          return [enumerator == nil ? "none" : "one"] + (found(enumerator, in: w) ?? []) + seen
        }
      }
      w.step("missing, without a handler") {
        found(
          m.enumerator(
            at: w.url("missing", isDirectory: true), includingPropertiesForKeys: nil, options: [],
            errorHandler: nil),
          in: w)
      }
      w.step("URL's attributes") {
        let enumerator = m.enumerator(
          at: w.url("d/s", isDirectory: true), includingPropertiesForKeys: nil, options: [], errorHandler: nil
        )
        var names: [String] = []
        while let url = enumerator?.nextObject() as? URL {
          names.append("\(url.lastPathComponent) \(w.text(enumerator?.fileAttributes?[.type]))")
        }
        return names.sorted()
      }
      w.step("post order: children before their directory the second time") {
        guard
          let enumerator = m.enumerator(
            at: w.url("d/p.app", isDirectory: true), includingPropertiesForKeys: nil,
            options: .includesDirectoriesPostOrder, errorHandler: nil)
        else { return nil }
        var names: [String] = []
        while let url = enumerator.nextObject() as? URL {
          names.append("\(enumerator.level) \(url.lastPathComponent)")
        }
        return names.sorted()
      }
    },
    Case(name: "enumerator while things change") { w in
      let m = w.manager
      try w.makeDirectory("d/one")
      try w.make("d/one/x")
      w.step("a directory that goes before it is entered") {
        guard let enumerator = m.enumerator(atPath: w.path("d")) else { return nil }
        var names: [String] = []
        while let item = enumerator.nextObject() as? String {
          names.append(item)
          if item == "one" { try m.removeItem(atPath: w.path("d/one")) }
        }
        return names.first
      }
    },
  ]
}
