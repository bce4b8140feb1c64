import Foundation

extension Case {
  static let handles: [Case] = [
    Case(name: "handles open") { w in
      try w.make("a", "1")
      try w.makeDirectory("d")
      try w.makeLink("toA", to: "a")
      try w.makeLink("toD", to: "d")
      try w.makeLink("dangling", to: "missing")
      try w.makeLink("loop", to: "loop")
      for access in World.Access.allCases {
        for name in ["a", "toA", "d", "toD", "dangling", "loop", "missing", "a/", "a/x", "no/x"] {
          w.step("\(access) at path \(name)") {
            let handle = w.handle(access, atPath: w.path(name))
            try? handle?.close()
            return handle == nil ? "none" : "opened"
          }
          w.step("\(access) at URL \(name)") {
            try w.handle(access, at: w.url(name)).close()
            return "opened"
          }
        }
        w.step("\(access) at the empty path") { w.handle(access, atPath: "") == nil ? "none" : "opened" }
      }
      w.step("read a directory") { try w.handle(.reading, atPath: w.path("d"))?.readToEnd() }
      w.step("nothing was made") { try w.tree() }
    },
    Case(name: "handle reads") { w in
      try w.make("a", "0123456789")
      guard let handle = w.handle(.reading, atPath: w.path("a")) else {
        throw CannotSetUp(description: "no handle")
      }
      w.step("three") { try handle.read(upToCount: 3) }
      w.step("offset") { try handle.offset() }
      w.step("none") { try handle.read(upToCount: 0) }
      w.step("the rest") { try handle.readToEnd() }
      w.step("at the end") { try handle.readToEnd() }
      w.step("at the end, some") { try handle.read(upToCount: 5) }
      w.step("at the end, none") { try handle.read(upToCount: 0) }
      w.step("seek") { try handle.seek(toOffset: 8) }
      w.step("more than there is") { try handle.read(upToCount: 100) }
      w.step("seek past the end") { try handle.seek(toOffset: 100) }
      w.step("read past the end") { try handle.read(upToCount: 1) }
      w.step("read all past the end") { try handle.readToEnd() }
      w.step("offset past the end") { try handle.offset() }
      w.step("seekToEnd") { try handle.seekToEnd() }
      w.step("seek back") { try handle.seek(toOffset: 2) }
      w.step("three again") { try handle.read(upToCount: 3) }
      w.step("as much as there can be") {
        try handle.seek(toOffset: 5)
        return try handle.read(upToCount: Int.max)
      }
      w.step("seek to the largest offset") { try handle.seek(toOffset: UInt64(Int64.max)) }
      try handle.seek(toOffset: 0)
      w.step("write through a reading handle") { try handle.write(contentsOf: Data("x".utf8)) }
      w.step("truncate through a reading handle") { try handle.truncate(atOffset: 1) }
      w.step("synchronize a reading handle") { try handle.synchronize() }
      w.step("contents") { w.contents("a") }
      w.step("close") { try handle.close() }
      w.step("close again") { try handle.close() }
      w.step("read when closed") { try handle.read(upToCount: 1) }
      w.step("read to end when closed") { try handle.readToEnd() }
      w.step("offset when closed") { try handle.offset() }
      w.step("seek when closed") { try handle.seek(toOffset: 0) }
      w.step("seekToEnd when closed") { try handle.seekToEnd() }
      w.step("write when closed") { try handle.write(contentsOf: Data("x".utf8)) }
      w.step("truncate when closed") { try handle.truncate(atOffset: 0) }
      w.step("synchronize when closed") { try handle.synchronize() }
    },
    Case(name: "handle writes") { w in
      try w.make("a", "0123456789")
      guard let handle = w.handle(.writing, atPath: w.path("a")) else {
        throw CannotSetUp(description: "no handle")
      }
      w.step("begins at") { try handle.offset() }
      w.step("write") { try handle.write(contentsOf: Data("AB".utf8)) }
      w.step("contents") { w.contents("a") }
      w.step("offset") { try handle.offset() }
      w.step("array") { try handle.write(contentsOf: [UInt8]("CD".utf8)) }
      w.step("slice") { try handle.write(contentsOf: Array("xEFx".utf8)[1..<3]) }
      w.step("data") { try handle.write(contentsOf: Data("GH".utf8)) }
      w.step("nothing") { try handle.write(contentsOf: Data()) }
      w.step("contents then") { w.contents("a") }
      w.step("read through a writing handle") { try handle.read(upToCount: 1) }
      w.step("read all through a writing handle") { try handle.readToEnd() }
      w.step("past the end") {
        try handle.seek(toOffset: 20)
        try handle.write(contentsOf: Data("end".utf8))
        return w.contents("a")
      }
      w.step("truncate shorter") {
        try handle.truncate(atOffset: 4)
        return w.contents("a")
      }
      w.step("offset after truncate") { try handle.offset() }
      w.step("truncate longer") {
        try handle.truncate(atOffset: 8)
        return w.contents("a")
      }
      w.step("offset after growing") { try handle.offset() }
      w.step("truncate by two") {
        try handle.truncate(atOffset: 6)
        return w.contents("a")
      }
      w.step("write after truncate") {
        try handle.write(contentsOf: Data("!".utf8))
        return w.contents("a")
      }
      w.step("a hole") {
        try handle.truncate(atOffset: 3_000_000)
        return w.contents("a")
      }
      w.step("behind the hole") {
        try handle.write(contentsOf: Data("tail".utf8))
        return w.contents("a")
      }
      w.step("in the hole") {
        try handle.seek(toOffset: 1_500_000)
        try handle.write(contentsOf: Data(repeating: 5, count: 100_000))
        return w.contents("a")
      }
      w.step("size") { try w.manager.attributesOfItem(atPath: w.path("a"))[.size] }
      w.step("truncate to nothing") {
        try handle.truncate(atOffset: 0)
        return w.contents("a")
      }
      w.step("synchronize") { try handle.synchronize() }
      w.step("close") { try handle.close() }
      w.step("at the end") { w.contents("a") }
    },
    Case(name: "handle updates") { w in
      try w.make("a", "0123456789")
      guard let handle = w.handle(.updating, atPath: w.path("a")) else {
        throw CannotSetUp(description: "no handle")
      }
      w.step("read") { try handle.read(upToCount: 2) }
      w.step("write") { try handle.write(contentsOf: Data("xy".utf8)) }
      w.step("read on") { try handle.read(upToCount: 2) }
      w.step("append") {
        _ = try handle.seekToEnd()
        try handle.write(contentsOf: Data("more".utf8))
        try handle.seek(toOffset: 0)
        return try handle.readToEnd()
      }
      w.step("close") { try handle.close() }
      w.step("contents") { w.contents("a") }
    },
    Case(name: "two handles and a path") { w in
      let m = w.manager
      try w.make("a", "0123456789")
      guard let one = w.handle(.updating, atPath: w.path("a")),
        let two = w.handle(.updating, atPath: w.path("a"))
      else {
        throw CannotSetUp(description: "no handles")
      }
      w.step("one writes") { try one.write(contentsOf: Data("ABC".utf8)) }
      w.step("two reads") { try two.read(upToCount: 5) }
      w.step("offsets") { [w.text(try one.offset()), w.text(try two.offset())] }
      w.step("two truncates") { try two.truncate(atOffset: 2) }
      w.step("one reads") { try one.readToEnd() }
      w.step("one writes past the end") { try one.write(contentsOf: Data("Z".utf8)) }
      w.step("by path") { w.contents("a") }
      w.step("size") { try m.attributesOfItem(atPath: w.path("a"))[.size] }
      w.step("createFile behind them") {
        m.createFile(atPath: w.path("a"), contents: Data("new".utf8), attributes: nil)
      }
      w.step("one then") {
        try one.seek(toOffset: 0)
        return try one.readToEnd()
      }
      w.step("by path then") { w.contents("a") }
      w.step("two writes") {
        try two.seek(toOffset: 0)
        return try two.write(contentsOf: Data("222".utf8))
      }
      w.step("by path after that") { w.contents("a") }
      w.step("moved behind them") { try m.moveItem(atPath: w.path("a"), toPath: w.path("b")) }
      w.step("one writes on") { try one.write(contentsOf: Data("moved".utf8)) }
      w.step("at the new path") { w.contents("b") }
      w.step("removed behind them") { try m.removeItem(atPath: w.path("b")) }
      w.step("one writes what is removed") { try one.write(contentsOf: Data("gone".utf8)) }
      w.step("two reads what is removed") {
        try two.seek(toOffset: 0)
        return try two.readToEnd()
      }
      w.step("truncates what is removed") { try two.truncate(atOffset: 1) }
      w.step("synchronizes what is removed") { try two.synchronize() }
      w.step("nothing is at the path") { m.fileExists(atPath: w.path("b")) }
      w.step("another at the path") {
        try w.make("b", "another")
        try one.write(contentsOf: Data("!".utf8))
        return w.contents("b")
      }
      w.step("one closes") { try one.close() }
      w.step("two closes") { try two.close() }
      w.step("at the end") { try w.tree() }
    },
    Case(name: "handle of a hard link, and permissions") { w in
      let m = w.manager
      try w.make("a", "1")
      try m.linkItem(atPath: w.path("a"), toPath: w.path("b"))
      guard let handle = w.handle(.writing, atPath: w.path("a")) else {
        throw CannotSetUp(description: "no handle")
      }
      w.step("written by one name") { try handle.write(contentsOf: Data("xyz".utf8)) }
      w.step("read by the other") { w.contents("b") }
      w.step("name goes") { try m.removeItem(atPath: w.path("a")) }
      w.step("written on") { try handle.write(contentsOf: Data("!".utf8)) }
      w.step("by the other name") { w.contents("b") }
      w.step("closed") { try handle.close() }
      try m.setAttributes([.posixPermissions: 0o400], ofItemAtPath: w.path("b"))
      w.step("writing what may not be written") {
        w.handle(.writing, atPath: w.path("b")) == nil ? "none" : "opened"
      }
    },
  ]
}
