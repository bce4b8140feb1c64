import Foundation

extension Case {
  static let delegates: [Case] = [
    Case(name: "delegate is asked") { w in
      let m = w.manager
      try w.makeTree()
      try w.make("f", "1")
      let delegate = RecordingDelegate()
      w.setDelegate(delegate)
      w.step("copy of a file") { try m.copyItem(atPath: w.path("f"), toPath: w.path("g")) }
      w.step("copy of a file: asked") { delegate.takeCalls() }
      w.step("copy of a directory") { try m.copyItem(atPath: w.path("d"), toPath: w.path("d2")) }
      w.step("copy of a directory: asked") { delegate.takeCalls().sorted() }
      w.step("link of a file") { try m.linkItem(atPath: w.path("f"), toPath: w.path("h")) }
      w.step("link of a file: asked") { delegate.takeCalls() }
      w.step("link of a directory") { try m.linkItem(atPath: w.path("d"), toPath: w.path("d3")) }
      w.step("link of a directory: asked") { delegate.takeCalls().sorted() }
      w.step("move of a file") { try m.moveItem(atPath: w.path("f"), toPath: w.path("i")) }
      w.step("move of a file: asked") { delegate.takeCalls() }
      w.step("move of a directory") { try m.moveItem(atPath: w.path("d"), toPath: w.path("d4")) }
      w.step("move of a directory: asked") { delegate.takeCalls() }
      w.step("removal of a file") { try m.removeItem(atPath: w.path("g")) }
      w.step("removal of a file: asked") { delegate.takeCalls() }
      w.step("removal of a directory") { try m.removeItem(atPath: w.path("d2")) }
      w.step("removal of a directory: asked") { delegate.takeCalls().sorted() }
      w.step("copy into a missing directory") { try m.copyItem(atPath: w.path("d4"), toPath: w.path("no/d")) }
      w.step("copy into a missing directory: asked") { delegate.takeCalls().sorted() }
      w.step("copy by URL") { try m.copyItem(at: w.url("h"), to: w.url("u")) }
      w.step("copy by URL: asked") { delegate.takeCalls() }
      w.step("removal by URL") { try m.removeItem(at: w.url("u")) }
      w.step("removal by URL: asked") { delegate.takeCalls() }
      w.setDelegate(nil)
      w.step("what is there") { try w.tree() }
    },
    Case(name: "delegate's order") { w in
      let m = w.manager
      try w.makeDirectory("d/s/t")
      try w.make("d/s/t/x")
      let delegate = RecordingDelegate()
      w.setDelegate(delegate)
      try m.copyItem(atPath: w.path("d"), toPath: w.path("e"))
      w.step("copy") { delegate.takeCalls() }
      try m.linkItem(atPath: w.path("d"), toPath: w.path("f"))
      w.step("link") { delegate.takeCalls() }
      try m.removeItem(atPath: w.path("d"))
      w.step("remove") { delegate.takeCalls() }
      w.setDelegate(nil)
    },
    Case(name: "delegate refuses") { w in
      let m = w.manager
      try w.makeTree()
      try w.make("f", "1")
      let one = RecordingDelegate(refusing: ["f", "b"])
      w.setDelegate(one)
      w.step("copy of a file") { try m.copyItem(atPath: w.path("f"), toPath: w.path("g")) }
      w.step("copy of a directory") { try m.copyItem(atPath: w.path("d"), toPath: w.path("d2")) }
      w.step("copied") { try w.tree("d2") }
      w.step("link of a file") { try m.linkItem(atPath: w.path("f"), toPath: w.path("h")) }
      w.step("link of a directory") { try m.linkItem(atPath: w.path("d"), toPath: w.path("d3")) }
      w.step("linked") { try w.tree("d3") }
      w.step("move of a file") { try m.moveItem(atPath: w.path("f"), toPath: w.path("i")) }
      w.step("removal of a file") { try m.removeItem(atPath: w.path("f")) }
      _ = one.takeCalls()
      w.step("removal of a directory") { try m.removeItem(atPath: w.path("d")) }
      w.step("removal of a directory: asked") { one.takeCalls().sorted() }
      w.step("what is there") { try w.tree() }
      w.setDelegate(nil)
      let two = RecordingDelegate(refusing: ["s", "e"])
      w.setDelegate(two)
      w.step("copy but for two directories") { try m.copyItem(atPath: w.path("d3"), toPath: w.path("d5")) }
      w.step("asked then") { two.takeCalls().sorted() }
      w.step("copied then") { try w.tree("d5") }
      w.step("removal but for two directories") { try m.removeItem(atPath: w.path("d3")) }
      w.step("asked at the removal") { two.takeCalls().sorted() }
      w.step("left of it") { try w.tree("d3") }
      w.setDelegate(nil)
    },
    Case(name: "delegate and errors") { w in
      let m = w.manager
      for proceeds in [true, false] {
        let with = proceeds ? "goes on: " : "stops: "
        for path in try m.contentsOfDirectory(atPath: w.root) { try m.removeItem(atPath: w.path(path)) }
        try w.make("a", "1")
        try w.make("b", "2")
        try w.makeTree()
        let delegate = RecordingDelegate(proceeds: proceeds)
        w.setDelegate(delegate)
        func both(_ label: String, _ body: () throws -> Void) {
          w.step(with + label) { try body() }
          w.step(with + label + ": asked") { delegate.takeCalls() }
        }
        both("copy onto a file") { try m.copyItem(atPath: w.path("a"), toPath: w.path("b")) }
        both("copy of a directory onto a file") { try m.copyItem(atPath: w.path("d"), toPath: w.path("b")) }
        both("copy of something missing") { try m.copyItem(atPath: w.path("missing"), toPath: w.path("c")) }
        both("copy into a missing directory") { try m.copyItem(atPath: w.path("a"), toPath: w.path("no/c")) }
        both("move onto a file") { try m.moveItem(atPath: w.path("a"), toPath: w.path("b")) }
        both("move of something missing") { try m.moveItem(atPath: w.path("missing"), toPath: w.path("c")) }
        both("move into a missing directory") { try m.moveItem(atPath: w.path("a"), toPath: w.path("no/c")) }
        both("link onto a file") { try m.linkItem(atPath: w.path("a"), toPath: w.path("b")) }
        both("link of something missing") { try m.linkItem(atPath: w.path("missing"), toPath: w.path("c")) }
        both("removal of something missing") { try m.removeItem(atPath: w.path("missing")) }
        w.setDelegate(nil)
        w.step(with + "what is there") { try w.tree() }
      }
    },
  ]

  static let workingDirectory: [Case] = [
    // Foundation takes some of these for the working directory, and would move that away.
    Case(name: "empty paths", changesWorkingDirectory: true) { w in
      let m = w.manager
      try w.make("a", "1")
      try w.makeDirectory("here/inner")
      try w.enter("here")
      w.step("createFile") { m.createFile(atPath: "", contents: nil, attributes: nil) }
      for intermediates in [false, true] {
        w.step("createDirectory, intermediates \(intermediates)") {
          try m.createDirectory(atPath: "", withIntermediateDirectories: intermediates, attributes: nil)
        }
      }
      w.step("createSymbolicLink") { try m.createSymbolicLink(atPath: "", withDestinationPath: "x") }
      w.step("setAttributes") { try m.setAttributes([.posixPermissions: 0o644], ofItemAtPath: "") }
      w.step("permissions of the working directory") { try w.permissions("here") }
      w.step("copyItem from") { try m.copyItem(atPath: "", toPath: w.path("copied")) }
      w.step("copyItem to") { try m.copyItem(atPath: w.path("a"), toPath: "") }
      w.step("copyItem") { try m.copyItem(atPath: "", toPath: "") }
      w.step("linkItem from") { try m.linkItem(atPath: "", toPath: w.path("linked")) }
      w.step("linkItem to") { try m.linkItem(atPath: w.path("a"), toPath: "") }
      w.step("linkItem") { try m.linkItem(atPath: "", toPath: "") }
      w.step("removeItem") { try m.removeItem(atPath: "") }
      w.step("moveItem to") { try m.moveItem(atPath: w.path("a"), toPath: "") }
      w.step("moveItem to, missing") { try m.moveItem(atPath: w.path("missing"), toPath: "") }
      w.step("moveItem") { try m.moveItem(atPath: "", toPath: "") }
      w.step("what is there") { try w.tree() }
      w.step("moveItem from") { try m.moveItem(atPath: "", toPath: w.path("moved")) }
      w.step("what is there then") { try w.tree() }
      let delegate = RecordingDelegate(proceeds: true)
      w.setDelegate(delegate)
      w.step("removeItem with a delegate") { try m.removeItem(atPath: "") }
      w.step("removeItem with a delegate: asked") { delegate.takeCalls() }
      w.setDelegate(nil)
    },
    Case(name: "working directory", changesWorkingDirectory: true) { w in
      let m = w.manager
      try w.enter("")
      w.step("is") { m.currentDirectoryPath }
      try w.makeDirectory("d/e")
      try w.make("f")
      try w.makeLink("toD", to: "d")
      for path in ["missing", "f", "", "d/missing/.."] {
        w.step("to '\(path)'") { m.changeCurrentDirectoryPath(path) }
        w.step("after '\(path)'") { m.currentDirectoryPath }
      }
      w.step("to d") { m.changeCurrentDirectoryPath("d") }
      w.step("is then") { m.currentDirectoryPath }
      w.step("create") { m.createFile(atPath: "a", contents: Data("1".utf8), attributes: nil) }
      w.step("contents") { m.contents(atPath: "a") }
      w.step("above") { m.fileExists(atPath: "../f") }
      w.step("copy") { try m.copyItem(atPath: "a", toPath: "e/b") }
      w.step("link") { try m.linkItem(atPath: "a", toPath: "./c") }
      w.step("symbolic link") { try m.createSymbolicLink(atPath: "s", withDestinationPath: "e/b") }
      w.step("target") { try m.destinationOfSymbolicLink(atPath: "s") }
      w.step("move") { try m.moveItem(atPath: "c", toPath: "../c") }
      w.step("directory") {
        try m.createDirectory(atPath: "x/y", withIntermediateDirectories: true, attributes: nil)
      }
      w.step("attributes") { try m.attributesOfItem(atPath: "s")[.type] }
      w.step("set") { try m.setAttributes([.posixPermissions: 0o600], ofItemAtPath: "a") }
      for path in [".", "./", ".//", "..", "e", "../d"] {
        w.step("list '\(path)'") { try m.contentsOfDirectory(atPath: path).sorted() }
        w.step("enumerate '\(path)'") {
          var found: [String] = []
          let enumerator = m.enumerator(atPath: path)
          while let item = enumerator?.nextObject() as? String { found.append(item) }
          return found.sorted()
        }
      }
      w.step("equal") { m.contentsEqual(atPath: "a", andPath: "e/b") }
      w.step("handle") { try w.handle(.reading, atPath: "a")?.readToEnd() }
      w.step("missing") { try m.removeItem(atPath: "missing") }
      w.step("missing, moved") { try m.moveItem(atPath: "missing", toPath: "elsewhere") }
      w.step("onto, copied") { try m.copyItem(atPath: "a", toPath: "s") }
      let delegate = RecordingDelegate(proceeds: true)
      w.setDelegate(delegate)
      for (label, body) in [
        ("copy", { try m.copyItem(atPath: "e", toPath: "e2") }),
        ("link", { try m.linkItem(atPath: "e", toPath: "e3") }),
        ("move", { try m.moveItem(atPath: "e2", toPath: "e4") }),
        ("remove a file", { try m.removeItem(atPath: "a") }),
        ("remove a directory", { try m.removeItem(atPath: "e4") }),
        ("remove nothing", { try m.removeItem(atPath: "no") }),
        ("move nothing", { try m.moveItem(atPath: "no", toPath: "nor") }),
      ] as [(String, () throws -> Void)] {
        w.step("delegate: \(label)") {
          try body()
          return delegate.takeCalls()
        }
      }
      w.setDelegate(nil)
      w.step("through a link") { m.changeCurrentDirectoryPath(w.path("toD")) }
      w.step("physical path") { m.currentDirectoryPath }
      w.step("with a slash") { m.changeCurrentDirectoryPath(w.path("d/e/")) }
      w.step("is without") { m.currentDirectoryPath }
      w.step("remove it") { try m.removeItem(atPath: w.path("d/e")) }
      w.step("is gone") { m.currentDirectoryPath }
      w.step("create in what is gone") { m.createFile(atPath: "z", contents: nil, attributes: nil) }
      w.step("list what is gone") { try m.contentsOfDirectory(atPath: ".") }
      w.step("back") { m.changeCurrentDirectoryPath(w.root) }
      w.step("rename below it") {
        guard m.changeCurrentDirectoryPath(w.path("d")) else { return false }
        try m.moveItem(atPath: w.path("d"), toPath: w.path("renamed"))
        return m.currentDirectoryPath
      }
      w.step("what is there") { try w.tree() }
    },
  ]
}
