import Foundation

extension Case {
  static let links: [Case] = [
    Case(name: "createSymbolicLink") { w in
      let m = w.manager
      try w.make("a", "1")
      try w.makeDirectory("d")
      func link(_ path: String, _ target: String) throws {
        try m.createSymbolicLink(atPath: w.path(path), withDestinationPath: target)
      }
      func target(_ path: String) throws -> String { try m.destinationOfSymbolicLink(atPath: w.path(path)) }
      for (name, to) in [
        ("relative", "a"), ("dangling", "nowhere/at all"), ("absolute", w.path("a")), ("up", "../x/./y//z/"),
        ("self", "self"),
        ("slash", "d/"), ("root", "/"), ("dot", "."),
      ] {
        w.step("make \(name)") { try link(name, to) }
        w.step("target of \(name)") { try target(name) }
      }
      w.step("over a file") { try link("a", "x") }
      w.step("over a directory") { try link("d", "x") }
      w.step("over a link") { try link("relative", "x") }
      w.step("over a dangling link") { try link("dangling", "x") }
      w.step("in a missing directory") { try link("no/l", "x") }
      w.step("below a file") { try link("a/l", "x") }
      w.step("slash at the end") { try link("e/", "x") }
      w.step("empty target") { try link("empty", "") }
      w.step("target of 4095 bytes") { try link("long", String(repeating: "t", count: 4095)) }
      w.step("target of 4096 bytes") { try link("longer", String(repeating: "t", count: 4096)) }
      w.step("target of a file") { try target("a") }
      w.step("target of a directory") { try target("d") }
      w.step("target of something missing") { try target("missing") }
      w.step("target below a file") { try target("a/x") }
      w.step("target of the empty path") { try m.destinationOfSymbolicLink(atPath: "") }
      w.step("target with a slash at the end") { try target("slash/") }
      w.step("by URL") {
        try m.createSymbolicLink(at: w.url("byURL"), withDestinationURL: w.url("a"))
        return try target("byURL")
      }
      w.step("by URL to a directory") {
        try m.createSymbolicLink(at: w.url("byURL2"), withDestinationURL: w.url("d", isDirectory: true))
        return try target("byURL2")
      }
      w.step("by URL, relative") {
        try m.createSymbolicLink(
          at: w.url("byURL3"), withDestinationURL: URL(string: "a", relativeTo: w.url("", isDirectory: true))!
        )
        return try target("byURL3")
      }
      w.step("by URL over a file") {
        try m.createSymbolicLink(at: w.url("a"), withDestinationURL: w.url("d"))
      }
      w.step("read through absolute") { w.contents("absolute") }
    },
    Case(name: "loops and chains") { w in
      let m = w.manager
      try w.makeLink("l1", to: "l2")
      try w.makeLink("l2", to: "l3")
      try w.makeLink("l3", to: "l1")
      w.step("loop exists") { m.fileExists(atPath: w.path("l1")) }
      w.step("loop read") { w.contents("l1") }
      w.step("loop listed") { try m.contentsOfDirectory(atPath: w.path("l1")) }
      w.step("loop's attributes") { try w.type("l1") }
      w.step("loop's permissions set") {
        try m.setAttributes([.posixPermissions: 0o600], ofItemAtPath: w.path("l1"))
      }
      w.step("behind a loop") { try w.type("l1/x") }
      w.step("file behind a loop") { m.createFile(atPath: w.path("l1/x"), contents: nil, attributes: nil) }
      w.step("directory behind a loop") {
        try m.createDirectory(atPath: w.path("l1/x"), withIntermediateDirectories: false, attributes: nil)
      }
      w.step("removed behind a loop") { try m.removeItem(atPath: w.path("l1/x")) }
      w.step("moved behind a loop") { try m.moveItem(atPath: w.path("l1/x"), toPath: w.path("y")) }
      w.step("copied from behind a loop") { try m.copyItem(atPath: w.path("l1/x"), toPath: w.path("y")) }
      w.step("copied to behind a loop") { try m.copyItem(atPath: w.path("l2"), toPath: w.path("l1/x")) }
      w.step("loop's target") { try m.destinationOfSymbolicLink(atPath: w.path("l1")) }
      w.step("loop removed") { try m.removeItem(atPath: w.path("l1")) }
      try w.make("chain0", "end")
      for i in 1...45 { try w.makeLink("chain\(i)", to: "chain\(i - 1)") }
      for length in [39, 40, 41, 45] {
        w.step("chain of \(length)") { w.contents("chain\(length)") }
      }
    },
    Case(name: "links in the middle and dots behind them") { w in
      let m = w.manager
      try w.makeDirectory("a/b")
      try w.make("a/inA", "A")
      try w.make("inRoot", "R")
      try w.makeLink("link", to: "a/b")
      try w.makeLink("a/b/up", to: "..")
      w.step("dots go to the parent of the target") { w.contents("link/../inA") }
      w.step("and not of the link") { w.contents("link/../inRoot") }
      w.step("link to the parent") { w.contents("a/b/up/inA") }
      w.step("round and round") { w.contents("link/up/b/up/b/../inA") }
      w.step("made through it") {
        m.createFile(atPath: w.path("link/new"), contents: Data("n".utf8), attributes: nil)
      }
      w.step("copied through it") {
        try m.copyItem(atPath: w.path("link/new"), toPath: w.path("link/../copy"))
      }
      w.step("moved through it") {
        try m.moveItem(atPath: w.path("link/new"), toPath: w.path("link/../moved"))
      }
      w.step("listed through it") { try m.contentsOfDirectory(atPath: w.path("link/..")).sorted() }
      w.step("removed through it") { try m.removeItem(atPath: w.path("link/../copy")) }
      w.step("link removed with a slash") { try m.removeItem(atPath: w.path("link/")) }
      w.step("what is there") { try w.tree() }
      w.step("link removed") { try m.removeItem(atPath: w.path("link")) }
      w.step("then") { try w.tree() }
    },
    Case(name: "linkItem") { w in
      let m = w.manager
      try w.make("a", "1")
      try w.makeTree()
      try w.makeLink("toA", to: "a")
      try w.makeLink("dangling", to: "missing")
      func link(_ from: String, _ to: String) throws {
        try m.linkItem(atPath: w.path(from), toPath: w.path(to))
      }
      w.step("file") { try link("a", "b") }
      w.step("same number") {
        try m.attributesOfItem(atPath: w.path("a"))[.systemFileNumber] as? NSNumber
          == m.attributesOfItem(atPath: w.path("b"))[.systemFileNumber] as? NSNumber
      }
      w.step("references") { try m.attributesOfItem(atPath: w.path("a"))[.referenceCount] }
      w.step("over a file") { try link("a", "b") }
      w.step("over itself") { try link("a", "a") }
      w.step("over a directory") { try link("a", "d") }
      w.step("missing") { try link("missing", "c") }
      w.step("into a missing directory") { try link("a", "no/c") }
      w.step("below a file") { try link("a", "b/c") }
      w.step("from below a file") { try link("a/x", "c") }
      w.step("symbolic link") { try link("toA", "toA2") }
      w.step("symbolic link stays one") { try w.type("toA2") }
      w.step("dangling link") { try link("dangling", "dangling2") }
      w.step("directory") { try link("d", "d2") }
      w.step("directory's tree") { try w.tree("d2") }
      w.step("directory's file is the same") {
        try m.attributesOfItem(atPath: w.path("d/a"))[.systemFileNumber] as? NSNumber
          == m.attributesOfItem(atPath: w.path("d2/a"))[.systemFileNumber] as? NSNumber
      }
      w.step("directory again") { try link("d", "d2") }
      w.step("references to a link to a directory") {
        try w.makeLink("toD", to: "d")
        try link("toD", "toD2")
        return try m.attributesOfItem(atPath: w.path("toD2"))[.referenceCount]
      }
      w.step("references to a link to a file") {
        try m.attributesOfItem(atPath: w.path("toA2"))[.referenceCount]
      }
      w.step("references to a link in a directory") {
        try m.attributesOfItem(atPath: w.path("d2/s/link"))[.referenceCount]
      }
      w.step("directory into a missing one") { try link("d", "no/deep/d") }
      w.step("directory below a file") { try link("d", "b/d") }
      w.step("what is below the missing one") { try w.tree("no") }
      w.step("directory into itself") { try link("d/e", "d/e/x") }
      w.step("by URL") { try m.linkItem(at: w.url("a"), to: w.url("byURL")) }
      w.step("by URL, missing") { try m.linkItem(at: w.url("missing"), to: w.url("byURL2")) }
      try w.make("a", "changed")
      w.step("seen by the other name") { w.contents("b") }
      try m.removeItem(atPath: w.path("a"))
      w.step("stays when one is removed") { w.contents("b") }
      w.step("references then") { try m.attributesOfItem(atPath: w.path("b"))[.referenceCount] }
    },
  ]

  static let paths: [Case] = [
    Case(name: "names") { w in
      let m = w.manager
      let names = [
        "255 bytes": String(repeating: "n", count: 255), "256 bytes": String(repeating: "n", count: 256),
        "255 bytes of UTF-8": String(repeating: "é", count: 127) + "n",
        "256 bytes of UTF-8": String(repeating: "é", count: 128),
        "newline": "a\nb", "backslash": "a\\b", "space": " ", "three dots": "...", "colon": "a:b",
        "percent": "%41", "hash": "a#b?c",
        "emoji": "👩🏽‍🚀", "control": "\u{1}\u{7F}", "tilde": "~", "star": "*",
      ]
      for (label, name) in names.sorted(by: { $0.key < $1.key }) {
        w.step("\(label): file") {
          m.createFile(atPath: w.path(name), contents: Data("x".utf8), attributes: nil)
        }
        w.step("\(label): read") { w.contents(name) }
        w.step("\(label): listed") { try m.contentsOfDirectory(atPath: w.root).contains(name) }
        w.step("\(label): exists") { m.fileExists(atPath: w.path(name)) }
        w.step("\(label): attributes") { try w.type(name) }
        w.step("\(label): by URL") {
          var isDirectory: ObjCBool = false
          return m.fileExists(atPath: w.url(name).path, isDirectory: &isDirectory)
        }
        w.step("\(label): removed") { try m.removeItem(atPath: w.path(name)) }
        w.step("\(label): directory") {
          try m.createDirectory(atPath: w.path(name), withIntermediateDirectories: false, attributes: nil)
        }
        w.step("\(label): link") {
          try m.createSymbolicLink(atPath: w.path("l\(name)"), withDestinationPath: name)
        }
        w.step("\(label): moved") { try m.moveItem(atPath: w.path(name), toPath: w.path("moved \(label)")) }
        w.step("\(label): moved to") {
          try m.moveItem(atPath: w.path("moved \(label)"), toPath: w.path(name))
        }
        w.step("\(label): copied to") {
          try w.make("source \(label)")
          return try m.copyItem(atPath: w.path("source \(label)"), toPath: w.path(name))
        }
      }
    },
    Case(name: "composed and decomposed") { w in
      let m = w.manager
      let composed = "\u{E9}"
      let decomposed = "e\u{301}"
      try w.make(composed, "composed")
      w.step("the other spelling") { w.contents(decomposed) }
      try w.make(decomposed, "decomposed")
      w.step("two files") { try m.contentsOfDirectory(atPath: w.root).count }
      w.step("bytes of the names") {
        try m.contentsOfDirectory(atPath: w.root).map { "\(Array($0.utf8))" }.sorted()
      }
      w.step("first") { w.contents(composed) }
      w.step("second") { w.contents(decomposed) }
      w.step("by URL") { w.contents(w.url(decomposed).lastPathComponent) }
      w.step("moved onto the other") { try m.moveItem(atPath: w.path(composed), toPath: w.path(decomposed)) }
      w.step("removed") { try m.removeItem(atPath: w.path(composed)) }
      w.step("left") { try m.contentsOfDirectory(atPath: w.root).map { "\(Array($0.utf8))" } }
    },
    Case(name: "slashes and dots") { w in
      let m = w.manager
      try w.make("a", "1")
      try w.makeDirectory("d/e")
      w.step("removes a file with a slash") { try m.removeItem(atPath: w.path("a/")) }
      w.step("moves a file with a slash") { try m.moveItem(atPath: w.path("a/"), toPath: w.path("b")) }
      w.step("moves a file to a path with a slash") {
        try w.make("m")
        return try m.moveItem(atPath: w.path("m"), toPath: w.path("n/"))
      }
      w.step("copies a file with a slash") {
        try w.make("q")
        return try m.copyItem(atPath: w.path("q/"), toPath: w.path("r"))
      }
      w.step("copies a file to a path with a slash") {
        try m.copyItem(atPath: w.path("q"), toPath: w.path("s/"))
      }
      w.step("links a file with a slash") { try m.linkItem(atPath: w.path("q/"), toPath: w.path("t")) }
      w.step("links to a path with a slash") { try m.linkItem(atPath: w.path("q"), toPath: w.path("u/")) }
      w.step("moves a directory with a slash") { try m.moveItem(atPath: w.path("d/"), toPath: w.path("f/")) }
      w.step("copies a directory with a slash") { try m.copyItem(atPath: w.path("f/"), toPath: w.path("g/")) }
      w.step("what is there") { try w.tree() }
      try w.makeDirectory("x/y")
      w.step("removes a dot") { try m.removeItem(atPath: w.path("x/y/.")) }
      try w.makeDirectory("x/y")
      w.step("removes dots") { try m.removeItem(atPath: w.path("x/y/..")) }
      try w.makeDirectory("x/y")
      w.step("moves a dot") { try m.moveItem(atPath: w.path("x/y/."), toPath: w.path("z")) }
      w.step("moves to a dot") { try m.moveItem(atPath: w.path("x/y"), toPath: w.path("x/.")) }
      w.step("copies dots") { try m.copyItem(atPath: w.path("x/y/.."), toPath: w.path("xcopy")) }
      try w.makeDirectory("v/w")
      w.step("removes a directory with a slash") { try m.removeItem(atPath: w.path("v/")) }
      w.step("what is left") { try w.tree() }
    },
    Case(name: "path of more than 4096 bytes") { w in
      let m = w.manager
      try w.make("a", "1")
      let long = String(repeating: "./", count: 2100) + "a"
      w.step("exists") { m.fileExists(atPath: w.path(long)) }
      w.step("contents") { w.contents(long) }
      w.step("attributes") { try w.type(long) }
      w.step("removed") { try m.removeItem(atPath: w.path(long)) }
    },
    Case(name: "names for people and for the system") { w in
      let m = w.manager
      try w.makeDirectory("d")
      try w.make("d/a.txt")
      w.step("displayName of a file") { m.displayName(atPath: w.path("d/a.txt")) }
      w.step("displayName of a directory") { m.displayName(atPath: w.path("d/")) }
      w.step("displayName of something missing") { m.displayName(atPath: w.path("missing")) }
      w.step("displayName of the root") { m.displayName(atPath: "/") }
      w.step("displayName of nothing") { m.displayName(atPath: "") }
      w.step("componentsToDisplay") {
        m.componentsToDisplay(forPath: w.path("d/a.txt"))?.suffix(3).dropFirst(0).last
      }
      w.step("componentsToDisplay, the parent") {
        m.componentsToDisplay(forPath: w.path("d/a.txt"))?.dropLast().last
      }
      w.step("componentsToDisplay of something missing") {
        m.componentsToDisplay(forPath: w.path("missing")) == nil
      }
      w.step("componentsToDisplay of nothing") { m.componentsToDisplay(forPath: "") }
      w.step("fileSystemRepresentation") {
        let bytes = m.fileSystemRepresentation(withPath: "a/☃")
        defer { bytes.deallocate() }
        return String(cString: bytes)
      }
      w.step("string") { "a/☃".withCString { m.string(withFileSystemRepresentation: $0, length: 5) } }
      w.step("string of nothing") {
        UnsafePointer<CChar>(bitPattern: 1).map { m.string(withFileSystemRepresentation: $0, length: 0) }
      }
    },
  ]
}
