import ContainerStore
import Foundation
import SodiumPrimitives
import Testing

/// What commands tell of damage, and what they do in spite of it.
struct DamageTests {
  /// A container with 20 files below /d, two of which are damaged.
  private func damaged() throws -> (folder: TemporaryFolder, container: String, missing: Set<String>) {
    let folder = try TemporaryFolder()
    let container = try folder.makeContainer()
    let tree = try folder.makeFolder("d")
    for i in 0..<20 { _ = try folder.makeFile("d/f\(i)", Random.bytes(40_000)) }
    try folder.run("put", container, tree)
    let slab = container + "/slab/" + (try #require(try fileNames(in: container + "/slab").first))
    var bytes = try readBytes(slab)
    for offset in [100_000, 500_000] { bytes[offset] ^= 1 }
    try writeBytes(bytes, slab)
    let verdict = try folder.run("container", "verify", container, expecting: 2).text
    let missing = Set(verdict.matches(of: #/damage: /(d/f[0-9]+): /#).map { String($0.1) })
    #expect(missing.count == 2)
    return (folder, container, missing)
  }

  private func expectRest(
    _ folder: TemporaryFolder, in directory: String, _ missing: Set<String>,
    _ outcome: DynamicsProcess.Outcome
  ) throws {
    for i in 0..<20 {
      let name = "d/f\(i)"
      if missing.contains(name) {
        #expect(!exists(directory + "/" + name))
        #expect(outcome.errors.contains("/" + name + " "), "\(outcome.errors)")
      } else {
        #expect(try readBytes(directory + "/" + name) == readBytes(folder.path(name)))
      }
    }
    #expect(outcome.errors.contains("left out"))
    #expect(try fileNames(in: directory + "/d").allSatisfy { !$0.hasSuffix(".part") })
  }

  /// Up to the segment that the message names, though pieces of 1 MiB are read.
  @Test func catPrintsWhatLiesBeforeTheDamage() throws {
    let folder = try TemporaryFolder()
    let container = try folder.makeContainer()
    let contents = (0..<40_000).map { "line \($0)\n" }.joined()
    try folder.run("put", container, folder.makeFile("a", Array(contents.utf8)))
    let slab = container + "/slab/" + (try #require(try fileNames(in: container + "/slab").first))
    var bytes = try readBytes(slab)
    bytes[100_000] ^= 1
    try writeBytes(bytes, slab)
    let outcome = try folder.run("cat", container, "/a", expecting: 2)
    let place = try #require(outcome.errors.firstMatch(of: #/byte ([0-9]+)/#)).1
    #expect(outcome.text.utf8.count == Int(place) && outcome.text.utf8.count > 60_000)
    #expect(contents.hasPrefix(outcome.text))
  }

  @Test(arguments: [["get"], ["cp"], ["cp", "-n"], ["cp", "-a", "-v"]])
  func everythingElseComesOut(command: [String]) throws {
    let (folder, container, missing) = try damaged()
    let out = try folder.makeFolder("out")
    let outcome = try folder.run(command + [container + ":/d", out], expecting: 2)
    try expectRest(folder, in: out, missing, outcome)
    for name in missing { #expect(!outcome.text.contains(name + "\n")) }
  }

  @Test func everythingElseGoesIntoAnotherContainer() throws {
    let (folder, container, missing) = try damaged()
    let other = try folder.makeContainer("other")
    let outcome = try folder.run(
      "cp", container + ":/d", other + ":/", "--to-key-file", folder.path("key"), expecting: 2)
    let out = try folder.makeFolder("out")
    try folder.run("get", other, "/d", out)
    try expectRest(folder, in: out, missing, outcome)
  }

  @Test func stopsWhereItIsToldTo() throws {
    let (folder, container, missing) = try damaged()
    let out = try folder.makeFolder("out")
    let outcome = try folder.run("get", container, "/d", out, "--stop-at-damage", expecting: 2)
    #expect(missing.contains { outcome.errors.contains("/" + $0) })
    #expect(try fileNames(in: out) == [])
    // A file by its own name.
    let file = try #require(missing.first)
    try folder.run("get", container, "/" + file, out, expecting: 2)
    #expect(try fileNames(in: out) == [])
    // Inside one container a copy is made as a whole or not at all.
    try folder.run("cp", container, "/d", "/e", expecting: 2)
    #expect(try folder.run("ls", container).text == "d\n")
  }

  /// A copy of the superblock that is torn: what was found is said once, on standard error.
  @Test func whatAnOpeningFindsIsReported() throws {
    let folder = try TemporaryFolder()
    let container = try folder.makeContainer()
    try folder.run("put", container, try folder.makeFile("f", [7]))
    var bytes = try readBytes(container + "/superblock")
    bytes[100] ^= 1
    let expected = "dynamics: \(container): damage: "
    for arguments in [
      ["ls", container], ["cat", container, "/f"], ["get", container, "/f", folder.path("o")],
    ] {
      try writeBytes(bytes, container + "/superblock")
      let outcome = try folder.run(arguments)
      #expect(outcome.errors.split(separator: "\n").count { $0.hasPrefix(expected) } == 1, "\(arguments)")
      #expect(!outcome.text.contains("superblock"))
    }
    #expect(try folder.run("get", "--quiet", container, "/f", folder.path("p")).errors == "")
    let json = try folder.run("ls", "--json", container).errors
    let object = try JSONSerialization.jsonObject(with: Data(json.utf8)) as? [String: [String: String]]
    #expect(object?["finding"]?["severity"] == "damage")
    // info prints it where it always did.
    let info = try folder.run("container", "info", container)
    #expect(info.errors == "" && info.text.contains("damage: "))
    // A writer sets it right, and says so.
    #expect(try folder.run("mkdir", container, "/d").errors.hasPrefix(expected))
    #expect(try folder.run("ls", container).errors == "")
  }

  /// Damage in one copy of a part of the catalog that the opening does not read.
  @Test func whatACommandFindsIsReportedAndRepaired() throws {
    let folder = try TemporaryFolder()
    let container = try folder.makeContainer()
    let tree = try folder.makeFolder("d")
    let name = String(repeating: "long", count: 50)
    for i in 0..<8000 { _ = try folder.makeFile("d/\(name)-\(i)", []) }
    try folder.run("put", container, tree)
    let table = try #require(
      try fileNames(in: container + "/catalog").map { container + "/catalog/" + $0 }
        .max { try readBytes($0).count < readBytes($1).count })
    var bytes = try readBytes(table)
    try #require(bytes.count > 100_000)
    bytes[20_000] ^= 1
    try writeBytes(bytes, table)
    #expect(try folder.run("container", "info", container).text.contains("copyDamaged") == false)
    let outcome = try folder.run("ls", "-R", container)
    #expect(outcome.errors.contains("(copyDamaged)"), "\(outcome.errors)")
    #expect(outcome.errors.contains("container repair"))
    #expect(outcome.text.split(separator: "\n").count >= 8000)
    #expect(try folder.run("container", "verify", container, expecting: 2).text.contains("container repair"))
    #expect(try folder.run("container", "repair", container).text.hasSuffix("written anew\n"))
    #expect(try folder.run("ls", "-R", container).errors == "")
    try folder.run("container", "verify", container)
  }

  @Test func anOlderCopyOpensWhenThatIsAskedFor() throws {
    let folder = try TemporaryFolder()
    let container = try folder.makeContainer()
    let old = try readBytes(container + "/superblock")
    let catalog = try fileNames(in: container + "/catalog").map {
      ($0, try readBytes(container + "/catalog/" + $0))
    }
    try folder.run("put", container, try folder.makeFile("f", [7]))
    try writeBytes(old, container + "/superblock")
    for (name, bytes) in catalog { try writeBytes(bytes, container + "/catalog/" + name) }
    for arguments in [["ls", container], ["mkdir", container, "/d"]] {
      let refused = try folder.run(arguments, expecting: 2)
      #expect(refused.errors.contains("--accept-older-state"))
    }
    let shown = try folder.run("ls", container, "--accept-older-state")
    #expect(shown.text == "" && shown.errors.contains("damage: "))
    try folder.run("ls", container, expecting: 2)
    try folder.run("container", "repair", container, "--accept-older-state")
    #expect(try folder.run("ls", container).errors == "")
    try folder.run("container", "verify", container)
  }
}
