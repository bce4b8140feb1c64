import Foundation

extension Case {
  static let items: [Case] = [
    Case(name: "copyItem") { w in
      let m = w.manager
      try w.make("a", "1")
      try w.make("b", "2")
      try w.makeTree()
      try w.makeLink("toA", to: "a")
      try w.makeLink("toD", to: "d")
      try w.makeLink("dangling", to: "missing")
      func copy(_ from: String, _ to: String) throws {
        try m.copyItem(atPath: w.path(from), toPath: w.path(to))
      }
      w.step("file") { try copy("a", "a2") }
      w.step("onto a file") { try copy("a", "b") }
      w.step("onto a directory") { try copy("a", "d") }
      w.step("onto itself") { try copy("a", "a") }
      w.step("onto a link") { try copy("a", "toA") }
      w.step("onto a dangling link") { try copy("a", "dangling") }
      w.step("missing") { try copy("missing", "c") }
      w.step("missing onto a file") { try copy("missing", "a") }
      w.step("into a missing directory") { try copy("a", "no/c") }
      w.step("below a file") { try copy("a", "b/c") }
      w.step("from below a file") { try copy("a/x", "c") }
      w.step("link") { try copy("toA", "toA2") }
      w.step("link's copy is a link") { try w.type("toA2") }
      w.step("link to a directory") { try copy("toD", "toD2") }
      w.step("link to a directory's copy is a link") { try w.type("toD2") }
      w.step("dangling link") { try copy("dangling", "dangling2") }
      w.step("directory") { try copy("d", "d2") }
      w.step("directory's tree") { try w.tree("d2") }
      w.step("directory onto a directory") { try copy("d", "d2") }
      w.step("directory onto a file") { try copy("d", "a") }
      w.step("directory into a missing one") { try copy("d", "no/deep/d") }
      w.step("directory below a file") { try copy("d", "b/d") }
      w.step("what is below the missing one") { try w.tree("no") }
      w.step("by URL") { try m.copyItem(at: w.url("a"), to: w.url("byURL")) }
      w.step("by URL, onto a file") { try m.copyItem(at: w.url("a"), to: w.url("byURL")) }
      w.step("by URL, missing") { try m.copyItem(at: w.url("missing"), to: w.url("byURL2")) }
      try w.make("a", "changed")
      w.step("the copy is its own") { w.contents("a2") }
    },
    Case(name: "copyItem keeps metadata") { w in
      let m = w.manager
      for mode in [0o417, 0o400, 0o700, 0o707, 0o411, 0o000] {
        let name = String(mode, radix: 8)
        try w.make(name, name)
        try m.setAttributes([.posixPermissions: mode], ofItemAtPath: w.path(name))
        w.step("file with \(name)") {
          try m.copyItem(atPath: w.path(name), toPath: w.path("c" + name))
          return try w.permissions("c" + name)
        }
      }
      try w.makeDirectory("d")
      try m.setAttributes([.posixPermissions: 0o777], ofItemAtPath: w.path("d"))
      w.step("directory with 777") {
        try m.copyItem(atPath: w.path("d"), toPath: w.path("d2"))
        return try w.permissions("d2")
      }
    },
    Case(name: "copy of a directory into itself") { w in
      try w.makeDirectory("d/e")
      try w.make("d/a", "1")
      w.step("refused") { try w.manager.moveItem(atPath: w.path("d"), toPath: w.path("d/e/x")) }
      w.step("moved to below itself, by dots") {
        try w.manager.moveItem(atPath: w.path("d"), toPath: w.path("d/e/../x"))
      }
      w.step("what is there") { try w.tree() }
    },
    Case(name: "moveItem") { w in
      let m = w.manager
      try w.make("a", "1")
      try w.make("b", "2")
      try w.makeTree()
      try w.makeDirectory("empty")
      try w.makeLink("toA", to: "a")
      try w.makeLink("toD", to: "d")
      try w.makeLink("dangling", to: "missing")
      func move(_ from: String, _ to: String) throws {
        try m.moveItem(atPath: w.path(from), toPath: w.path(to))
      }
      w.step("onto a file") { try move("a", "b") }
      w.step("onto a directory") { try move("a", "d") }
      w.step("onto an empty directory") { try move("d", "empty") }
      w.step("onto itself") { try move("a", "a") }
      w.step("onto a link") { try move("b", "toA") }
      w.step("onto a dangling link") { try move("b", "dangling") }
      w.step("missing") { try move("missing", "c") }
      w.step("missing onto a file") { try move("missing", "a") }
      w.step("missing to below a file") { try move("missing", "a/x") }
      w.step("missing to below something missing") { try move("missing", "no/x") }
      w.step("from below something missing to below a file") { try move("no/x", "a/x") }
      w.step("from below a file to below something missing") { try move("a/x", "no/x") }
      w.step("into a missing directory") { try move("a", "no/c") }
      w.step("below a file") { try move("a", "b/c") }
      w.step("from below a file") { try move("a/x", "c") }
      w.step("file") { try move("a", "moved") }
      w.step("link") { try move("toD", "toD2") }
      w.step("dangling") { try move("dangling", "dangling2") }
      w.step("directory") { try move("d", "empty/d") }
      w.step("directory onto a file") { try move("empty", "b") }
      try w.make("one", "1")
      try m.linkItem(atPath: w.path("one"), toPath: w.path("other"))
      w.step("onto another name of the same file") { try move("one", "other") }
      w.step("case alone") { try move("one", "ONE") }
      w.step("by URL") { try m.moveItem(at: w.url("b"), to: w.url("byURL")) }
      w.step("by URL, onto a file") { try m.moveItem(at: w.url("byURL"), to: w.url("moved")) }
      w.step("by URL, missing") { try m.moveItem(at: w.url("missing"), to: w.url("byURL2")) }
      w.step("what is there") { try w.tree() }
    },
    Case(name: "removeItem") { w in
      let m = w.manager
      try w.make("a", "1")
      try w.makeTree()
      try w.makeLink("toA", to: "a")
      try w.makeLink("toD", to: "d")
      try w.makeLink("dangling", to: "missing")
      func remove(_ path: String) throws { try m.removeItem(atPath: w.path(path)) }
      w.step("missing") { try remove("missing") }
      w.step("in a missing directory") { try remove("no/x") }
      w.step("below a file") { try remove("a/x") }
      w.step("link to a directory") { try remove("toD") }
      w.step("which stays") { try w.tree("d").count }
      w.step("link") { try remove("toA") }
      w.step("dangling") { try remove("dangling") }
      w.step("file") { try remove("a") }
      w.step("twice") { try remove("a") }
      w.step("directory") { try remove("d") }
      try w.make("u")
      w.step("by URL") { try m.removeItem(at: w.url("u")) }
      w.step("by URL, missing") { try m.removeItem(at: w.url("u")) }
      try w.make("readOnly")
      try m.setAttributes([.posixPermissions: 0o400], ofItemAtPath: w.path("readOnly"))
      w.step("file that may not be written") { try remove("readOnly") }
      w.step("what is there") { try w.tree() }
      try w.makeDirectory("within/inner")
      try w.makeLink("within/link", to: "..")
      w.step("by a path through a link in it") { try remove("within/link/within") }
    },
  ]

  static let errors: [Case] = [
    Case(name: "what errors hold") { w in
      let m = w.manager
      try w.make("a", "1")
      try w.make("b", "2")
      try w.makeDirectory("d")
      func keys(_ label: String, _ body: () throws -> Void) {
        w.step(label) {
          do {
            try body()
            return "no error"
          } catch {
            return (error as NSError).userInfo.map { "\($0.key) \(w.text($0.value as? String))" }.sorted()
          }
        }
      }
      keys("contentsOfDirectory") { _ = try m.contentsOfDirectory(atPath: w.path("missing")) }
      keys("attributesOfItem") { _ = try m.attributesOfItem(atPath: w.path("missing")) }
      keys("removeItem") { try m.removeItem(atPath: w.path("missing")) }
      keys("removeItem by URL") { try m.removeItem(at: w.url("missing")) }
      keys("createDirectory") {
        try m.createDirectory(atPath: w.path("a"), withIntermediateDirectories: false, attributes: nil)
      }
      keys("copyItem") { try m.copyItem(atPath: w.path("a"), toPath: w.path("b")) }
      keys("copyItem of something missing") { try m.copyItem(atPath: w.path("missing"), toPath: w.path("c")) }
      keys("moveItem") { try m.moveItem(atPath: w.path("a"), toPath: w.path("b")) }
      keys("moveItem by URL") { try m.moveItem(at: w.url("a"), to: w.url("b")) }
      keys("linkItem") { try m.linkItem(atPath: w.path("a"), toPath: w.path("b")) }
      keys("createSymbolicLink") { try m.createSymbolicLink(atPath: w.path("a"), withDestinationPath: "b") }
      keys("setAttributes") {
        try m.setAttributes([.posixPermissions: 0o600], ofItemAtPath: w.path("missing"))
      }
      keys("replaceItemAt") {
        _ = try m.replaceItemAt(w.url("a"), withItemAt: w.url("missing"), backupItemName: nil, options: [])
      }
      keys("handle") { _ = try w.handle(.reading, at: w.url("missing")) }
      keys("read of a directory") { _ = try w.handle(.reading, atPath: w.path("d"))?.readToEnd() }
    }
  ]

  static let equality: [Case] = [
    Case(name: "contentsEqual") { w in
      let m = w.manager
      try w.make("a", "same")
      try w.make("b", "same")
      try w.make("c", "other")
      try w.make("longer", "same and more")
      try w.make("empty1")
      try w.make("empty2")
      try w.makeLink("toA", to: "a")
      try w.makeLink("alsoToA", to: "a")
      try w.makeLink("toB", to: "b")
      try w.makeLink("dangling", to: "missing")
      try w.makeLink("dangling2", to: "missing")
      try w.makeTree("d")
      try w.makeTree("e")
      try w.makeTree("more")
      try w.make("more/extra")
      try w.makeTree("changed")
      try w.make("changed/s/b", "BB")
      try w.makeTree("kind")
      try m.removeItem(atPath: w.path("kind/a"))
      try w.makeDirectory("kind/a")
      try w.makeDirectory("void")
      try w.makeLink("toVoid", to: "void")
      try w.makeDirectory("roundabout")
      try w.makeLink("roundabout/self", to: ".")
      try w.makeLink("roundabout/up", to: "..")
      for (one, other) in [
        ("a", "a"), ("a", "b"), ("a", "c"), ("a", "longer"), ("empty1", "empty2"), ("a", "empty1"),
        ("a", "toA"), ("toA", "toA"),
        ("toA", "alsoToA"), ("toA", "toB"), ("dangling", "dangling2"), ("dangling", "empty1"),
        ("dangling", "missing"),
        ("missing", "missing"), ("a", "missing"), ("missing", "a"), ("d", "d"), ("d", "e"), ("d", "more"),
        ("more", "d"),
        ("d", "changed"), ("d", "kind"), ("kind", "d"), ("d", "a"), ("a", "d"), ("void", "empty1"),
        ("void", "void"),
        ("toVoid", "void"), ("void", "toVoid"), ("roundabout", "roundabout"), ("d/", "e/"), ("a/", "b"),
        ("d/s/link", "e/s/link"),
      ] {
        w.step("\(one) and \(other)") { m.contentsEqual(atPath: w.path(one), andPath: w.path(other)) }
      }
      w.step("nothing and a") { m.contentsEqual(atPath: "", andPath: w.path("a")) }
      w.step("a and nothing") { m.contentsEqual(atPath: w.path("a"), andPath: "") }
      w.step("nothing and nothing") { m.contentsEqual(atPath: "", andPath: "") }
      try m.setAttributes(
        [.posixPermissions: 0o600, .modificationDate: Date(timeIntervalSince1970: 0)],
        ofItemAtPath: w.path("b"))
      w.step("other permissions and dates") { m.contentsEqual(atPath: w.path("a"), andPath: w.path("b")) }
      for count in [8191, 8192, 8193, 100_000] {
        var bytes = Data(repeating: 7, count: count)
        _ = m.createFile(atPath: w.path("x"), contents: bytes, attributes: nil)
        _ = m.createFile(atPath: w.path("y"), contents: bytes, attributes: nil)
        w.step("\(count) bytes") { m.contentsEqual(atPath: w.path("x"), andPath: w.path("y")) }
        bytes[count - 1] = 8
        _ = m.createFile(atPath: w.path("y"), contents: bytes, attributes: nil)
        w.step("\(count) bytes, the last differs") {
          m.contentsEqual(atPath: w.path("x"), andPath: w.path("y"))
        }
      }
    }
  ]

  static let replacement: [Case] = [
    Case(name: "replaceItemAt") { w in
      let m = w.manager
      let kinds = ["file", "directory", "link"]
      func make(_ kind: String, _ path: String, _ contents: String, _ mode: Int) throws {
        switch kind {
        case "file": try w.make(path, contents)
        case "directory":
          try w.makeDirectory(path)
          try w.make(path + "/inside", contents)
        default:
          return try w.makeLink(path, to: contents)
        }
        try m.setAttributes([.posixPermissions: mode], ofItemAtPath: w.path(path))
      }
      for old in kinds {
        for new in kinds {
          for (option, options) in [
            ("", []), (", new metadata", .usingNewMetadataOnly),
            (", backup kept", .withoutDeletingBackupItem),
            (", both", [.usingNewMetadataOnly, .withoutDeletingBackupItem]),
          ] as [(String, FileManager.ItemReplacementOptions)] {
            for backup in [nil, "backup"] {
              let label = "\(new) for \(old)\(option)\(backup == nil ? "" : ", with a backup's name")"
              try w.makeDirectory("w")
              try make(old, "w/old", "o", 0o740)
              try make(new, "new", "n", 0o704)
              w.step(label) {
                try m.replaceItemAt(
                  w.url("w/old"), withItemAt: w.url("new"), backupItemName: backup, options: options)
              }
              w.step(label + ": tree") { try w.tree() }
              w.step(label + ": permissions") {
                try w.type("w/old") == .typeSymbolicLink ? "" : try w.permissions("w/old")
              }
              for path in ["w", "new"] { _ = try? m.removeItem(atPath: w.path(path)) }
            }
          }
        }
      }
    },
    Case(name: "replaceItemAt that fails, and names in the way") { w in
      let m = w.manager
      func replace(
        _ old: String, _ new: String, _ backup: String? = nil,
        _ options: FileManager.ItemReplacementOptions = []
      ) throws -> URL? {
        try m.replaceItemAt(w.url(old), withItemAt: w.url(new), backupItemName: backup, options: options)
      }
      try w.make("old", "o")
      w.step("missing new item") { try replace("old", "missing") }
      try w.make("new", "n")
      w.step("missing old item") { try replace("missing", "new") }
      w.step("missing directory") { try replace("no/missing", "new") }
      w.step("what is there") { try w.tree() }
      try? w.make("new", "n")
      try? w.make("old", "o")
      try w.make("backup", "in the way")
      w.step("backup in the way") { try replace("old", "new", "backup", .withoutDeletingBackupItem) }
      w.step("then") { try w.tree() }
      try? w.make("new", "n")
      w.step("by itself") { try replace("new", "new") }
      w.step("after that") { try w.tree() }
      try w.makeDirectory("d")
      try w.make("d/inside", "i")
      w.step("directory by its own file") { try replace("d", "d/inside") }
      w.step("and that") { try w.tree() }
      try? w.makeDirectory("e")
      try? w.make("e/inside", "i")
      w.step("file by the directory that it is in") { try replace("e/inside", "e") }
      w.step("at the end") { try w.tree() }
    },
    Case(name: "replaceItemAt: dates and open handles") { w in
      let m = w.manager
      try w.make("old", "old contents")
      try m.setAttributes([.modificationDate: Date(timeIntervalSince1970: 1000)], ofItemAtPath: w.path("old"))
      try w.make("new", "new contents")
      try m.setAttributes([.modificationDate: Date(timeIntervalSince1970: 2000)], ofItemAtPath: w.path("new"))
      let handle = w.handle(.reading, atPath: w.path("old"))
      w.step("replaced") {
        try m.replaceItemAt(w.url("old"), withItemAt: w.url("new"), backupItemName: nil, options: [])
      }
      w.step("modification date") { try m.attributesOfItem(atPath: w.path("old"))[.modificationDate] }
      w.step("a handle keeps to the old one") { try handle?.readToEnd() }
      w.step("handle closed") { try handle?.close() }
    },
  ]
}
