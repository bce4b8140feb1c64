import Foundation

private let extendedAttributes = FileAttributeKey("NSFileExtendedAttributes")

extension Case {
  static let attributes: [Case] = [
    Case(name: "attributesOfItem") { w in
      let m = w.manager
      try w.make("a", "12345")
      try w.makeDirectory("d/sub")
      try w.makeLink("toA", to: "a")
      try w.makeLink("dangling", to: "missing, far away")
      try w.makeLink("loop", to: "loop")
      for name in [
        "a", "d", "toA", "dangling", "loop", "missing", "a/", "a/b", "d/", "toA/", "missing/x", "loop/x",
        "...",
      ] {
        w.step("type of \(name)") { try m.attributesOfItem(atPath: w.path(name))[.type] }
      }
      w.step("of nothing") { try m.attributesOfItem(atPath: "") }
      for name in ["a", "toA", "dangling"] {
        w.step("size of \(name)") { try m.attributesOfItem(atPath: w.path(name))[.size] }
        w.step("references to \(name)") { try m.attributesOfItem(atPath: w.path(name))[.referenceCount] }
      }
      w.step("references to a directory") { try m.attributesOfItem(atPath: w.path("d"))[.referenceCount] }
      w.step("permissions of a link") { try w.permissions("toA") }
      for (kind, name) in [("file", "a"), ("directory", "d"), ("link", "toA")] {
        w.step("keys of a \(kind)") {
          try m.attributesOfItem(atPath: w.path(name)).keys.map(\.rawValue).sorted()
        }
      }
      w.step("numbers convert") {
        let attributes = try m.attributesOfItem(atPath: w.path("a"))
        return [
          w.text(attributes[.size] as? UInt64), w.text(attributes[.size] as? Int),
          w.text(attributes[.size] as? Double),
          w.text((attributes[.posixPermissions] as? UInt) != nil),
          w.text((attributes[.referenceCount] as? Int) != nil),
          w.text((attributes[.systemFileNumber] as? UInt64) != nil),
          w.text((attributes[.systemNumber] as? UInt64) != nil),
          w.text((attributes[.ownerAccountID] as? UInt) != nil),
          w.text((attributes[.groupOwnerAccountID] as? UInt) != nil),
        ]
      }
      w.step("file numbers differ") {
        let first = try m.attributesOfItem(atPath: w.path("a"))[.systemFileNumber] as? NSNumber
        let second = try m.attributesOfItem(atPath: w.path("d"))[.systemFileNumber] as? NSNumber
        return first != nil && second != nil && first != second && first != 0
      }
      w.step("one system number") {
        let first = try m.attributesOfItem(atPath: w.path("a"))[.systemNumber] as? NSNumber
        let second = try m.attributesOfItem(atPath: w.path("d"))[.systemNumber] as? NSNumber
        return first != nil && first == second && first != 0
      }
      w.step("owner is the process's") {
        (try m.attributesOfItem(atPath: w.path("a"))[.ownerAccountID] as? NSNumber)?.uint32Value == geteuid()
      }
    },
    Case(name: "setAttributes") { w in
      let m = w.manager
      try w.make("a", "1")
      try w.makeDirectory("d")
      try w.makeLink("toA", to: "a")
      try w.makeLink("dangling", to: "missing")
      func set(_ attributes: [FileAttributeKey: Any], _ path: String = "a") throws {
        try m.setAttributes(attributes, ofItemAtPath: w.path(path))
      }
      func date(_ path: String = "a") throws -> Any? {
        try m.attributesOfItem(atPath: w.path(path))[.modificationDate]
      }
      w.step("permissions as Int") {
        try set([.posixPermissions: 0o640])
        return try w.permissions("a")
      }
      w.step("permissions as UInt16") {
        try set([.posixPermissions: UInt16(0o604)])
        return try w.permissions("a")
      }
      w.step("permissions as NSNumber") {
        try set([.posixPermissions: NSNumber(value: Int16(0o711))])
        return try w.permissions("a")
      }
      w.step("permissions as text") {
        try set([.posixPermissions: "755"])
        return try w.permissions("a")
      }
      w.step("permissions with special bits") {
        try set([.posixPermissions: 0o7755])
        return try w.permissions("a")
      }
      w.step("permissions with bits of no meaning") {
        try set([.posixPermissions: 0o170644])
        return try w.permissions("a")
      }
      w.step("permissions of a directory") {
        try set([.posixPermissions: 0o1750], "d")
        return try w.permissions("d")
      }
      w.step("permissions through a link") {
        try set([.posixPermissions: 0o621], "toA")
        return try w.permissions("a")
      }
      w.step("date") {
        try set([.modificationDate: Date(timeIntervalSince1970: 1_234_567_890.5)])
        return try date()
      }
      w.step("date before 1970") {
        try set([.modificationDate: Date(timeIntervalSince1970: -86400.25)])
        return try date()
      }
      w.step("date through a link") {
        try set([.modificationDate: Date(timeIntervalSince1970: 1000)], "toA")
        return try date()
      }
      for (name, value) in [
        ("infinity", Double.infinity), ("minus infinity", -.infinity), ("no number", .nan),
      ] {
        w.step("date \(name)") {
          try set([.modificationDate: Date(timeIntervalSinceReferenceDate: value)])
          return try date()
        }
      }
      w.step("date as text") {
        try set([.modificationDate: "yesterday"])
        return try date()
      }
      w.step("nothing") { try set([:]) }
      w.step("what cannot be set") {
        try set([.size: 7, .systemNumber: 1, .systemFileNumber: 2, .type: FileAttributeType.typeDirectory])
      }
      w.step("size is what it was") { try m.attributesOfItem(atPath: w.path("a"))[.size] }
      w.step("all that was read") { try set(m.attributesOfItem(atPath: w.path("a"))) }
      w.step("unknown key") { try set([FileAttributeKey("Unknown"): 1]) }
      w.step("missing") { try set([.posixPermissions: 0o644], "missing") }
      w.step("missing, date") { try set([.modificationDate: Date()], "missing") }
      w.step("missing, nothing") { try set([:], "missing") }
      w.step("dangling") { try set([.posixPermissions: 0o644], "dangling") }
      w.step("below a file") { try set([.posixPermissions: 0o644], "a/b") }
    },
    Case(name: "extended attributes") { w in
      let m = w.manager
      func set(_ values: [String: Data], _ path: String = "a") throws {
        try m.setAttributes([extendedAttributes: values], ofItemAtPath: w.path(path))
      }
      func get(_ path: String = "a") throws -> [String] {
        let values = try m.attributesOfItem(atPath: w.path(path))[extendedAttributes] as? [String: Data]
        return (values ?? [:]).map { "\($0.key): \(w.text($0.value))" }.sorted()
      }
      try w.make("a", "1")
      try w.makeDirectory("d")
      try w.makeLink("toA", to: "a")
      w.step("none") { try m.attributesOfItem(atPath: w.path("a"))[extendedAttributes] == nil }
      w.step("one") {
        try set(["user.one": Data("1".utf8)])
        return try get()
      }
      w.step("another beside it") {
        try set(["user.two": Data("22".utf8)])
        return try get()
      }
      w.step("changed") {
        try set(["user.one": Data("eins".utf8)])
        return try get()
      }
      w.step("empty value") {
        try set(["user.empty": Data()])
        return try get()
      }
      w.step("of a directory") {
        try set(["user.d": Data("d".utf8)], "d")
        return try get("d")
      }
      w.step("empty name") { try set(["": Data("1".utf8)]) }
      w.step("name of 300 bytes") { try set(["user." + String(repeating: "n", count: 295): Data("1".utf8)]) }
      w.step("missing") { try set(["user.one": Data()], "missing") }
      try m.copyItem(atPath: w.path("a"), toPath: w.path("copy"))
      w.step("of a copy") { try get("copy") }
      try m.moveItem(atPath: w.path("a"), toPath: w.path("moved"))
      w.step("of what was moved") { try get("moved") }
    },
    Case(name: "attributesOfFileSystem") { w in
      let m = w.manager
      try w.make("a")
      w.step("keys") { try m.attributesOfFileSystem(forPath: w.root).keys.map(\.rawValue).sorted() }
      w.step("of a file") { try m.attributesOfFileSystem(forPath: w.path("a")).count }
      w.step("they make sense") {
        let attributes = try m.attributesOfFileSystem(forPath: w.root)
        func value(_ key: FileAttributeKey) -> UInt64 { (attributes[key] as? NSNumber)?.uint64Value ?? 0 }
        return [
          w.text(value(.systemSize) > value(.systemFreeSize)), w.text(value(.systemFreeSize) > 0),
          w.text(value(.systemNodes) > value(.systemFreeNodes)), w.text(value(.systemFreeNodes) > 0),
          w.text(value(.systemNumber) != 0),
        ]
      }
      w.step("missing") { try m.attributesOfFileSystem(forPath: w.path("missing")) }
      w.step("empty path") { try m.attributesOfFileSystem(forPath: "") }
    },
    Case(name: "dates move with what is done") { w in
      let m = w.manager
      let old = Date(timeIntervalSince1970: 1000)
      func age(_ path: String) throws {
        try m.setAttributes([.modificationDate: old], ofItemAtPath: w.path(path))
      }
      func isOld(_ path: String) throws -> Bool {
        try m.attributesOfItem(atPath: w.path(path))[.modificationDate] as? Date == old
      }
      try w.makeDirectory("d")
      try w.makeDirectory("e")
      try w.make("d/a", "1")
      func steps(_ name: String, _ body: () throws -> Void) {
        w.step(name) {
          for path in ["d", "e", "d/a"] { try age(path) }
          try body()
          return try ["d", "e", "d/a"].map {
            m.fileExists(atPath: w.path($0)) ? try isOld($0) ? "old" : "new" : "gone"
          }
        }
      }
      steps("file changed") { try w.make("d/a", "2") }
      steps("file read") { _ = w.contents("d/a") }
      steps("file created") { try w.make("d/b", "2") }
      steps("file removed") { try m.removeItem(atPath: w.path("d/b")) }
      steps("permissions changed") {
        try m.setAttributes([.posixPermissions: 0o600], ofItemAtPath: w.path("d/a"))
      }
      steps("linked") { try m.linkItem(atPath: w.path("d/a"), toPath: w.path("e/l")) }
      steps("copied") { try m.copyItem(atPath: w.path("d/a"), toPath: w.path("e/c")) }
      steps("moved within") { try m.moveItem(atPath: w.path("e/c"), toPath: w.path("e/m")) }
      steps("moved away") { try m.moveItem(atPath: w.path("e/m"), toPath: w.path("d/m")) }
      steps("directory made") { try w.makeDirectory("e/x") }
      steps("listed") { _ = try m.contentsOfDirectory(atPath: w.path("d")) }
      w.step("copy of a file has the date of the original") {
        try age("d/a")
        try m.copyItem(atPath: w.path("d/a"), toPath: w.path("copied"))
        return try isOld("copied")
      }
      w.step("copy of a directory has the date of the original") {
        try age("d")
        try m.copyItem(atPath: w.path("d"), toPath: w.path("dcopy"))
        return try isOld("dcopy")
      }
      w.step("what is moved keeps its date") {
        try age("d")
        try m.moveItem(atPath: w.path("d"), toPath: w.path("dmoved"))
        return try isOld("dmoved")
      }
    },
  ]
}
