import Foundation

extension Case {
  static let files: [Case] = [
    Case(name: "createFile") { w in
      let m = w.manager
      w.step("new") { m.createFile(atPath: w.path("a"), contents: Data("one".utf8), attributes: nil) }
      w.step("its contents") { w.contents("a") }
      w.step("without contents") { m.createFile(atPath: w.path("b"), contents: nil, attributes: nil) }
      w.step("contents of an empty file") { w.contents("b") }
      w.step("over a file") {
        m.createFile(atPath: w.path("a"), contents: Data("two, longer".utf8), attributes: nil)
      }
      w.step("contents then") { w.contents("a") }
      w.step("over a file, shorter") {
        m.createFile(atPath: w.path("a"), contents: Data("3".utf8), attributes: nil)
      }
      w.step("contents at last") { w.contents("a") }
      w.step("over a file, without contents") {
        m.createFile(atPath: w.path("a"), contents: nil, attributes: nil)
      }
      w.step("contents without contents") { w.contents("a") }
      try w.makeDirectory("d")
      w.step("over a directory") { m.createFile(atPath: w.path("d"), contents: Data(), attributes: nil) }
      w.step("in a missing directory") {
        m.createFile(atPath: w.path("no/a"), contents: nil, attributes: nil)
      }
      w.step("below a file") { m.createFile(atPath: w.path("a/b"), contents: nil, attributes: nil) }
      w.step("with a slash at the end") { m.createFile(atPath: w.path("e/"), contents: nil, attributes: nil) }
      w.step("path of the root") { m.createFile(atPath: w.root, contents: nil, attributes: nil) }
      w.step("what is there") { try w.tree() }
    },
    Case(name: "createFile with attributes") { w in
      let m = w.manager
      for mode in [0o753, 0o600, 0o000, 0o444] {
        let name = String(mode, radix: 8)
        w.step("permissions \(name)") {
          m.createFile(atPath: w.path(name), contents: Data("x".utf8), attributes: [.posixPermissions: mode])
        }
        w.step("are \(name)") { try w.permissions(name) }
      }
      w.step("default permissions of a file") {
        _ = m.createFile(atPath: w.path("default"), contents: nil, attributes: nil)
        return try w.permissions("default")
      }
      w.step("date") {
        m.createFile(
          atPath: w.path("old"), contents: nil,
          attributes: [.modificationDate: Date(timeIntervalSince1970: 100)])
      }
      w.step("is that date") { try m.attributesOfItem(atPath: w.path("old"))[.modificationDate] }
      try w.make("keeps", "1")
      try m.setAttributes([.posixPermissions: 0o640], ofItemAtPath: w.path("keeps"))
      let number = try m.attributesOfItem(atPath: w.path("keeps"))[.systemFileNumber] as? NSNumber
      try w.make("keeps", "2")
      w.step("permissions after it was replaced") { try w.permissions("keeps") }
      w.step("file number after it was replaced") {
        try m.attributesOfItem(atPath: w.path("keeps"))[.systemFileNumber] as? NSNumber == number
      }
    },
    Case(name: "createFile through links") { w in
      let m = w.manager
      try w.make("a", "1")
      try w.makeDirectory("d")
      try w.makeLink("toA", to: "a")
      try w.makeLink("toD", to: "d")
      try w.makeLink("dangling", to: "missing")
      try w.makeLink("loop", to: "loop")
      for name in ["toA", "toD", "dangling", "loop"] {
        w.step("at \(name)") {
          m.createFile(atPath: w.path(name), contents: Data(name.utf8), attributes: nil)
        }
      }
      w.step("below toD") { m.createFile(atPath: w.path("toD/x"), contents: Data("x".utf8), attributes: nil) }
      w.step("what is there") { try w.tree() }
    },
    Case(name: "hard links keep together when a file is replaced by createFile") { w in
      try w.make("a", "1")
      try w.manager.linkItem(atPath: w.path("a"), toPath: w.path("b"))
      try w.make("a", "2")
      w.step("the other name") { w.contents("b") }
    },
    Case(name: "contents") { w in
      let m = w.manager
      try w.make("a", "hello")
      try w.makeDirectory("d")
      try w.makeLink("toA", to: "a")
      try w.makeLink("toD", to: "d")
      try w.makeLink("dangling", to: "missing")
      try w.makeLink("loop", to: "loop")
      for name in [
        "a", "d", "toA", "toD", "dangling", "loop", "missing", "a/", "a/b", "d/", "d/../a", "missing/../a",
        "./a", "//a",
      ] {
        w.step("of \(name)") { w.contents(name) }
      }
      w.step("of nothing") { m.contents(atPath: "") }
      let large = Data((0..<1_000_003).map { UInt8(truncatingIfNeeded: $0 ^ $0 >> 8) })
      w.step("large") { m.createFile(atPath: w.path("large"), contents: large, attributes: nil) }
      w.step("large, read") { w.contents("large") }
      w.step("large, the same") { w.contents("large") == large }
    },
    Case(name: "fileExists") { w in
      try w.make("a")
      try w.makeDirectory("d")
      try w.make("d/x")
      for (name, target) in [
        ("toA", "a"), ("toD", "d"), ("dangling", "missing"), ("loop", "loop"), ("up", "d/.."),
      ] {
        try w.makeLink(name, to: target)
      }
      for name in [
        "", "a", "d", "a/", "a/.", "a/..", "a/b", "d/", "d/.", "d/..", "d//x", "d/x/", "toA", "toA/", "toD",
        "toD/", "toD/x", "toD/..", "dangling",
        "dangling/", "loop", "loop/a", "up", "up/a", "missing", "missing/..", "d/missing/../x", "...", ".",
        "..",
      ] {
        w.step("at '\(name)'") {
          var isDirectory: ObjCBool = false
          let exists = w.manager.fileExists(atPath: w.path(name), isDirectory: &isDirectory)
          guard exists == w.manager.fileExists(atPath: w.path(name)) else { return "both answers" }
          return exists ? isDirectory.boolValue ? "directory" : "other" : "nothing"
        }
      }
      w.step("at the empty path") { w.manager.fileExists(atPath: "") }
      w.step("with nowhere to say what it is") { w.manager.fileExists(atPath: w.path("d"), isDirectory: nil) }
    },
    Case(name: "access") { w in
      let m = w.manager
      for mode in [0o000, 0o400, 0o200, 0o100, 0o600, 0o500, 0o700, 0o077] {
        let name = String(mode, radix: 8)
        try w.make(name)
        try m.setAttributes([.posixPermissions: mode], ofItemAtPath: w.path(name))
        w.step("readable with \(name)") { m.isReadableFile(atPath: w.path(name)) }
        w.step("writable with \(name)") { m.isWritableFile(atPath: w.path(name)) }
        w.step("executable with \(name)") { m.isExecutableFile(atPath: w.path(name)) }
        w.step("deletable with \(name)") { m.isDeletableFile(atPath: w.path(name)) }
      }
      try w.makeDirectory("d")
      try w.makeLink("dangling", to: "missing")
      try w.makeLink("toD", to: "d")
      for name in ["d", "toD", "dangling", "missing", "missing/x", "700/x"] {
        w.step("readable at \(name)") { m.isReadableFile(atPath: w.path(name)) }
        w.step("writable at \(name)") { m.isWritableFile(atPath: w.path(name)) }
        w.step("executable at \(name)") { m.isExecutableFile(atPath: w.path(name)) }
        w.step("deletable at \(name)") { m.isDeletableFile(atPath: w.path(name)) }
      }
      w.step("readable at the empty path") { m.isReadableFile(atPath: "") }
      w.step("writable at the empty path") { m.isWritableFile(atPath: "") }
      w.step("executable at the empty path") { m.isExecutableFile(atPath: "") }
      w.step("deletable at the empty path") { m.isDeletableFile(atPath: "") }
    },
  ]

  static let directories: [Case] = [
    Case(name: "createDirectory") { w in
      let m = w.manager
      func create(_ path: String, _ intermediates: Bool) throws {
        try m.createDirectory(
          atPath: w.path(path), withIntermediateDirectories: intermediates, attributes: nil)
      }
      try w.make("f")
      try w.makeLink("dangling", to: "missing")
      try w.makeLink("toF", to: "f")
      for intermediates in [false, true] {
        let with = intermediates ? "with intermediates: " : "alone: "
        let top = intermediates ? "i" : "n"
        w.step(with + "new") { try create(top, intermediates) }
        w.step(with + "again") { try create(top, intermediates) }
        w.step(with + "deep") { try create(top + "/x/y/z", intermediates) }
        w.step(with + "at a file") { try create("f", intermediates) }
        w.step(with + "below a file") { try create("f/x", intermediates) }
        w.step(with + "deep below a file") { try create("f/x/y", intermediates) }
        w.step(with + "slash at the end") { try create(top + "/s/", intermediates) }
        w.step(with + "dots") { try create(top + "/./s/../t", intermediates) }
        w.step(with + "ends in dots") { try create(top + "/..", intermediates) }
        w.step(with + "ends in a dot") { try create(top + "/.", intermediates) }
        w.step(with + "behind something missing") { try create(top + "/u/../v", intermediates) }
        w.step(with + "at a dangling link") { try create("dangling", intermediates) }
        w.step(with + "below a dangling link") { try create("dangling/x", intermediates) }
        w.step(with + "at a link to a file") { try create("toF", intermediates) }
        try w.makeLink("to" + top, to: top)
        w.step(with + "at a link to a directory") { try create("to" + top, intermediates) }
        w.step(with + "below a link to a directory") { try create("to" + top + "/q", intermediates) }
        w.step(with + "root") { try create("", intermediates) }
        w.step(with + "permissions") {
          try m.createDirectory(
            atPath: w.path(top + "/p"), withIntermediateDirectories: intermediates,
            attributes: [.posixPermissions: 0o777])
          return try w.permissions(top + "/p")
        }
        w.step(with + "default permissions") {
          try create(top + "/default", intermediates)
          return try w.permissions(top + "/default")
        }
        w.step(with + "date") {
          try m.createDirectory(
            atPath: w.path(top + "/old"), withIntermediateDirectories: intermediates,
            attributes: [.modificationDate: Date(timeIntervalSince1970: 100)])
          return try m.attributesOfItem(atPath: w.path(top + "/old"))[.modificationDate]
        }
      }
      w.step("permissions of the last alone") {
        try m.createDirectory(
          atPath: w.path("m/n"), withIntermediateDirectories: true, attributes: [.posixPermissions: 0o711])
        return [try w.permissions("m"), try w.permissions("m/n")]
      }
      w.step("by URL") {
        try m.createDirectory(
          at: w.url("url/deep", isDirectory: true), withIntermediateDirectories: true, attributes: nil)
      }
      w.step("by URL, again") {
        try m.createDirectory(
          at: w.url("url", isDirectory: true), withIntermediateDirectories: false, attributes: nil)
      }
      w.step("what is there") { try w.tree() }
    },
    Case(name: "listing") { w in
      let m = w.manager
      try w.makeTree()
      try w.makeLink("toD", to: "d")
      try w.makeLink("dangling", to: "missing")
      try w.makeLink("loop", to: "loop")
      for name in [
        "d", "d/", "d//s", "d/e", "d/.", "d/s/..", "toD", "toD/", "toD/s", "missing", "d/a", "d/a/",
        "d/s/link", "dangling", "loop", "...",
      ] {
        w.step("contentsOfDirectory \(name)") { try m.contentsOfDirectory(atPath: w.path(name)).sorted() }
        w.step("subpathsOfDirectory \(name)") { try m.subpathsOfDirectory(atPath: w.path(name)).sorted() }
        w.step("subpaths \(name)") { m.subpaths(atPath: w.path(name))?.sorted() }
      }
      w.step("contentsOfDirectory of nothing") { try m.contentsOfDirectory(atPath: "") }
      w.step("subpathsOfDirectory of nothing") { try m.subpathsOfDirectory(atPath: "") }
      w.step("subpaths of nothing") { m.subpaths(atPath: "") }
      w.step("parents come before children") {
        let paths = try m.subpathsOfDirectory(atPath: w.path("d"))
        return paths.indices.allSatisfy { index in
          let directory = parent(of: paths[index])
          return directory.isEmpty || paths[..<index].contains(directory)
        }
      }
      w.step("subpaths in the same order") {
        try m.subpathsOfDirectory(atPath: w.path("d")) == m.subpaths(atPath: w.path("d"))
      }
    },
    Case(name: "listing by URL") { w in
      let m = w.manager
      try w.makeTree()
      try w.makeLink("toD", to: "d")
      try w.makeLink("d/toE", to: "e")
      try w.make("d/with space", "s")
      func list(
        _ path: String, _ options: FileManager.DirectoryEnumerationOptions = [], isDirectory: Bool = true
      ) throws -> [URL] {
        try m.contentsOfDirectory(
          at: w.url(path, isDirectory: isDirectory), includingPropertiesForKeys: nil, options: options
        ).sorted { $0.path < $1.path }
      }
      w.step("all") { try list("d") }
      w.step("URL without a slash") { try list("d", isDirectory: false) }
      w.step("skipsHiddenFiles") { try list("d", .skipsHiddenFiles) }
      w.step("skipsSubdirectoryDescendants") { try list("d", .skipsSubdirectoryDescendants) }
      w.step("producesRelativePathURLs") { try list("d", .producesRelativePathURLs).map(\.relativePath) }
      w.step("with keys") {
        try m.contentsOfDirectory(
          at: w.url("d", isDirectory: true), includingPropertiesForKeys: [.isDirectoryKey, .fileSizeKey],
          options: []
        ).count
      }
      w.step("through a link") { try list("toD") }
      w.step("empty") { try list("d/e") }
      w.step("missing") { try list("missing") }
      w.step("of a file") { try list("d/a", isDirectory: false) }
      w.step("equals appendingPathComponent") {
        try list("d").contains(w.url("d", isDirectory: true).appendingPathComponent("s", isDirectory: true))
      }
    },
  ]
}
