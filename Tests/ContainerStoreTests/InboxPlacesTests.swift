import Foundation
import TestSupport
import Testing

@testable import ContainerStore

/// Where the files of a message go.
struct InboxPlacesTests {
  /// The rule as it reads, with every folder remembered by its whole path.
  private static func places(_ originals: [[UInt8]], _ folders: [[UInt8]]) -> (
    files: [[UInt8]?], folders: Int
  ) {
    var taken: Set<[UInt8]> = []
    for path in originals.map({ Array(InboxPlaces.parent($0[...])) }) + folders {
      var rest = path[...]
      while !rest.isEmpty {
        taken.insert(Array(rest))
        rest = InboxPlaces.parent(rest)
      }
    }
    let folderCount = taken.count
    var seen: Set<[UInt8]> = []
    let files: [[UInt8]?] = originals.map { original in
      guard seen.insert(original).inserted else { return nil }
      var place = original
      var number = 1
      while !taken.insert(place).inserted {
        number += 1
        let parent = Array(InboxPlaces.parent(original[...]))
        let name = Array(original[(parent.isEmpty ? 0 : parent.count + 1)...])
        place = (parent.isEmpty ? [] : parent + Array("/".utf8)) + InboxName.numbered(name, number)
      }
      return place
    }
    return (files, folderCount)
  }

  @Test func areThoseOfTheRule() {
    let seed = UInt64.random(in: 0...UInt64.max)
    var random = SplitMix64(seed: seed)
    // A number cuts these to one name.
    let long = ["y", "z"].map { String(repeating: "x", count: 254) + $0 }
    for _ in 0..<500 {
      func path() -> [UInt8] {
        let names = (0..<Int.random(in: 1...4, using: &random)).map { _ in
          (["a", "b", "ab", "a-2", "a.b", "a!"] + long).randomElement(using: &random)!
        }
        return Array(names.joined(separator: "/").utf8)
      }
      let originals = (0..<Int.random(in: 0...30, using: &random)).map { _ in path() }
      let folders = (0..<Int.random(in: 0...3, using: &random)).map { _ in path() }
      let expected = Self.places(originals, folders)
      let places = InboxPlaces(files: originals, directories: folders)
      #expect(places.files == expected.files, "seed \(seed)")
      #expect(places.folderCount == expected.folders, "seed \(seed)")
    }
  }

  /// Pairs that differ in a control character, and whose names are one when a number cuts them: searched for in
  /// the time of their number, where the square of it would take hours.
  @Test func freeNamesAreFoundInTimeOfTheirNumber() {
    let pairCount = TestEffort.count(10_000, long: 30_000)
    let front = [UInt8](repeating: UInt8(ascii: "x"), count: 249)
    let originals = (0..<pairCount).flatMap { i in
      let end = Array(String(100_000 + i).utf8.dropFirst())
      return [[0x01], [0x02]].map { control in control + front + end }
    }
    #expect(originals.allSatisfy { $0.count == 255 })
    let places = InboxPlaces(files: originals)
    #expect(Set(places.files.compactMap(\.self)).count == 2 * pairCount)
    #expect(places.files.allSatisfy { $0?.count ?? 256 <= 255 })
  }

  private func manifest(
    fileCount: Int, pathsByteCountMax: Int = ArrivingMessage.pathsByteCountMax
  ) -> Manifest {
    Manifest(
      Parcel([], number: 1).message(fileCount: UInt64(fileCount)), pathsByteCountMax: pathsByteCountMax)
  }

  private func file(_ path: [UInt8]) -> ArrivingFile {
    ArrivingFile(path: path, size: 0, modified: 0, permissions: 0o600)
  }

  @Test func theBytesOfAllPathsAreLimited() throws {
    // 31 names of 255 bytes: 7,936 bytes.
    let name = [UInt8(ascii: "/")] + [UInt8](repeating: UInt8(ascii: "x"), count: 255)
    let folder = Array(repeatElement(name, count: 30).joined())
    func path(_ i: Int) -> [UInt8] {
      folder + [UInt8(ascii: "/")] + Array(String(i).utf8)
        + [UInt8](repeating: 0x78, count: 255 - String(i).utf8.count)
    }
    let limit = 1 << 20
    let count = limit / path(0).count
    var manifest = manifest(fileCount: count + 1, pathsByteCountMax: limit)
    try manifest.add((0..<count).map { file(path($0)) })
    #expect(throws: ArrivalLimit.paths) { try manifest.add([file(path(count))]) }
    // As many as fit are taken.
    try manifest.add([file(Array("/short".utf8))])
    #expect(manifest.isComplete && manifest.places.count == count + 1)
  }

  @Test func theFoldersOfAMessageAreLimited() throws {
    // Each file has 100 folders of its own.
    let fileCount = ArrivingMessage.folderCountMax / 100 + 1
    let files = (0..<fileCount).map { i in
      file(Array(("/\(i)" + String(repeating: "/a", count: 99) + "/f").utf8))
    }
    var few = manifest(fileCount: fileCount - 1)
    try few.add(Array(files.dropLast()))
    #expect(few.isComplete)
    var many = manifest(fileCount: fileCount)
    #expect(throws: ArrivalLimit.folders) { try many.add(files) }
  }
}

extension Parcel {
  fileprivate func message(fileCount: UInt64) -> ArrivingMessage {
    var message = message
    message.fileCount = fileCount
    return message
  }
}
