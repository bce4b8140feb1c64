import EncryptedFile

@testable import ContainerStore
@testable import OpenDynamicsTesting

extension Target {
  /// A whole container with a few edits, opened, verified and read.
  ///
  /// Input: a byte for the container (even: the golden one; odd: one that this code wrote), then edits to the end, at most eight,
  /// each a byte for its kind. Edits of stored bytes are what anybody can do who can write to the disk: whatever can be read
  /// afterwards is what was there before. Edits of plaintext, which is sealed again, are what a faulty writer can do: nothing may
  /// trap, hang or take more memory than the container justifies.
  static let container = Target(
    name: "container", inputByteCountMax: 512,
    seeds: {
      var seeds = [Seed("golden", [0]), Seed("fresh", [1])]
      for (sample, name) in ["golden", "fresh"].enumerated() {
        for kind in UInt8(0)..<16 {
          let decisions = [UInt8(sample), kind, 1, 0, 2, 0, 0, 4, 3, 2, 1, 0]
          seeds.append(Seed("\(name)-\(kind)", decisions, isAccepted: false))
        }
      }
      return seeds
    },
    accepts: { bytes in
      var input = Input(bytes)
      let sample = input.byte() & 1 == 0 ? SampleContainer.golden : SampleContainer.fresh
      var image = sample.image
      var isSealed = false
      for _ in 0..<8 where !input.isEmpty {
        let kind = input.byte()
        if kind & 8 == 0 {
          StoredEdit.apply(kind & 7, &input, to: &image)
        } else {
          isSealed = true
          try sample.applySealed(kind & 7, &input, to: &image)
        }
      }
      return try inspect(image, of: sample, isSealed: isSealed)
    })

  /// Opens, verifies and reads. Says whether all went well.
  private static func inspect(
    _ image: DiskImage, of sample: SampleContainer, isSealed: Bool
  ) throws -> Bool {
    let expected = isSealed ? nil : sample.contents
    var options = Container.Options()
    options.threadCount = 1
    options.acceptsOlderState = true
    do {
      let container = try Container.open(
        io: RecordingIO(image), credential: sample.credential(), mode: .readOnly, options: options)
      let report = try container.verify()
      let listed = try container.list("/", recursively: true)
      let paths = Set(listed.map { "/" + $0.path })
      require(expected == nil || Set(expected!.keys) == paths, "another tree is read: \(paths.sorted())")
      var isWhole = true
      for file in listed {
        let path = "/" + file.path
        _ = try attributes(container, path)
        guard file.attributes.kind == .file else { continue }
        do {
          let contents = try read(container, path, file.attributes.size)
          require(expected == nil || expected![path] == contents, "other contents of \(path) are read")
        } catch let error as ContainerError {
          isWhole = false
          require(
            error.code != .fileDamaged || report.hasDamage, "verify missed the damage of \(path): \(error)")
        }
      }
      try container.close()
      return isWhole && !report.hasDamage
    } catch is ContainerError {
      return false
    }
  }

  private static func attributes(_ container: Container, _ path: String) throws -> FileAttributes? {
    do { return try container.attributes(at: path) } catch is ContainerError { return nil }
  }

  /// All of a file of reasonable size, else its beginning and its end.
  private static func read(_ container: Container, _ path: String, _ size: UInt64) throws -> [UInt8] {
    if size <= 1 << 20 { return try container.contents(at: path) }
    var buffer = [UInt8](repeating: 0, count: 1 << 16)
    for offset in [size - 1, size / 2, 0] {
      _ = try buffer.withUnsafeMutableBytes { try container.read(path, at: offset, into: $0) }
    }
    return buffer
  }
}

/// What anybody can do to the files of a container.
private enum StoredEdit {
  static func apply(_ kind: UInt8, _ input: inout Input, to image: inout DiskImage) {
    let names = image.names.keys.sorted()
    guard !names.isEmpty else { return }
    let name = names[Int(input.byte()) % names.count]
    var bytes = image.contents[image.names[name]!]!
    switch kind {
    case 0, 1: Edit(&input).apply(to: &bytes)
    case 2: bytes.removeLast(min(bytes.count, Int(input.number(UInt32.self) % UInt32(bytes.count + 1))))
    case 3: bytes += input.piece()
    case 4:
      // A part of another file, or of this one, over a part of this one.
      let other = image.contents[image.names[names[Int(input.byte()) % names.count]]!]!
      guard !bytes.isEmpty, !other.isEmpty else { return }
      let from = Int(input.number(UInt32.self)) % other.count
      let to = Int(input.number(UInt32.self)) % bytes.count
      let count = min(1 + Int(input.number(UInt16.self)), other.count - from, bytes.count - to)
      bytes.replaceSubrange(to..<(to + count), with: other[from..<(from + count)])
    case 5:
      let other = names[Int(input.byte()) % names.count]
      image.names.swapAt(name, other)
      return
    case 6:
      image.contents[image.names.removeValue(forKey: name)!] = nil
      return
    default:
      // A whole page of zeros, as a lost write leaves it.
      guard !bytes.isEmpty else { return }
      let begin = Int(input.number(UInt32.self)) % bytes.count / 4096 * 4096
      let end = min(begin + 4096, bytes.count)
      bytes.replaceSubrange(begin..<end, with: repeatElement(0, count: end - begin))
    }
    image.contents[image.names[name]!] = bytes
  }
}

extension [String: Int] {
  fileprivate mutating func swapAt(_ a: String, _ b: String) { (self[a], self[b]) = (self[b], self[a]) }
}
