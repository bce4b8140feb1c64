import ContainerStore
import Foundation

/// Many small files: made, read, listed and removed one by one, in a container and as plain files; and the space they take.
struct FilesRung {
  let bench: Bench

  private static let byteCount = 4096
  private var count: Int { bench.fileCount }

  func measure() throws {
    let contents = (0..<count).map { index in
      let buffer = Buffer(byteCount: Self.byteCount)
      if index % 16 == 0 { buffer.fillIncompressibly() }
      return [UInt8](UnsafeRawBufferPointer(buffer.bytes))
    }
    let bytes = count * Self.byteCount
    var times = [(ours: Steps, theirs: Steps)]()
    for _ in 0..<bench.repetitions { times.append((try container(contents), try plain(contents))) }
    for (step, path) in Steps.all {
      var ours = Series("container: \(step)", byteCount: step == "list" || step == "remove" ? nil : bytes)
      var theirs = Series("FileManager: \(step)", byteCount: ours.byteCount)
      ours.seconds = times.map { $0.ours[keyPath: path] }
      theirs.seconds = times.map { $0.theirs[keyPath: path] }
      bench.add([ours, theirs])
      bench.add(Ratio("\(step): container / FileManager", subject: ours, baseline: theirs))
    }
    try space(contents)
  }

  private struct Steps {
    var create = 0.0
    var read = 0.0
    var list = 0.0
    var remove = 0.0

    static var all: [(String, KeyPath<Steps, Double>)] {
      [
        ("create, sync at the end", \.create), ("read", \.read), ("list", \.list), ("remove", \.remove),
      ]
    }
  }

  private static func name(_ index: Int) -> String { "file-\(index).dat" }

  private func container(_ contents: [[UInt8]]) throws -> Steps {
    try bench.workspace.prepare(source: "nothing", byteCount: 2 * count * Self.byteCount)
    let container = try bench.workspace.makeContainer("small", .grouped)
    try container.createDirectory("/d")
    var steps = Steps()
    steps.create = try seconds {
      for (i, bytes) in contents.enumerated() {
        try bytes.withUnsafeBytes { try container.write($0, to: "/d/" + Self.name(i)) }
      }
      try container.synchronize()
    }
    steps.read = try seconds {
      for (i, bytes) in contents.enumerated() {
        guard try container.contents(at: "/d/" + Self.name(i)).count == bytes.count else {
          fatalError("another size")
        }
      }
    }
    steps.list = try seconds {
      guard try container.names(in: "/d").count == count else { fatalError("not every file is listed") }
    }
    steps.remove = try seconds {
      for i in contents.indices { try container.remove("/d/" + Self.name(i)) }
      try container.synchronize()
    }
    try container.close()
    try bench.workspace.remove("small")
    return steps
  }

  private func plain(_ contents: [[UInt8]]) throws -> Steps {
    try bench.workspace.prepare(source: "nothing", byteCount: 2 * count * Self.byteCount)
    let directory = bench.workspace.place("plain")
    let manager = FileManager.default
    try manager.createDirectory(atPath: directory, withIntermediateDirectories: false)
    var steps = Steps()
    steps.create = try seconds {
      for (i, bytes) in contents.enumerated() {
        guard manager.createFile(atPath: directory + "/" + Self.name(i), contents: Data(bytes)) else {
          fatalError("no file")
        }
      }
      try Child.run("sync", ["--file-system", directory])
    }
    steps.read = seconds {
      for (i, bytes) in contents.enumerated() {
        guard manager.contents(atPath: directory + "/" + Self.name(i))?.count == bytes.count else {
          fatalError("another size")
        }
      }
    }
    steps.list = try seconds {
      guard try manager.contentsOfDirectory(atPath: directory).count == count else {
        fatalError("not every file is listed")
      }
    }
    steps.remove = try seconds {
      for i in contents.indices { try manager.removeItem(atPath: directory + "/" + Self.name(i)) }
      try Child.run("sync", ["--file-system", directory])
    }
    try bench.workspace.remove("plain")
    return steps
  }

  /// What the container takes on the disk, closed: fresh, and after as many random changes as five times its files.
  private func space(_ contents: [[UInt8]]) throws {
    let name = "space"
    var container = try bench.workspace.makeContainer(name, .grouped)
    for (i, bytes) in contents.enumerated() {
      try bytes.withUnsafeBytes { try container.write($0, to: "/" + Self.name(i)) }
    }
    try container.close()
    bench.add(
      SpaceUse(
        name: "space of fresh files", byteCount: try bench.workspace.diskByteCount(name),
        contentByteCount: count * Self.byteCount))
    container = try Workspace.open(bench.workspace.place(name), .readWrite)
    var generator = SystemRandomNumberGenerator()
    for step in 0..<(5 * count) {
      let i = Int.random(in: 0..<count, using: &generator)
      if step % 3 == 0 { try container.remove("/" + Self.name(i)) }
      try contents[i].withUnsafeBytes { try container.write($0, to: "/" + Self.name(i)) }
    }
    try container.close()
    bench.add(
      SpaceUse(
        name: "space after \(5 * count) random changes", byteCount: try bench.workspace.diskByteCount(name),
        contentByteCount: count * Self.byteCount))
    try bench.workspace.remove(name)
  }
}

/// Space that contents take on the disk.
struct SpaceUse: Encodable {
  var name: String
  var byteCount: Int
  var contentByteCount: Int
  var ratio: Double { Double(byteCount) / Double(contentByteCount) }
}
