import EncryptedFile

@testable import ContainerStore

extension Target {
  /// Values of the catalog; the first byte says of which type.
  static let catalog = Target(
    name: "catalog", inputByteCountMax: 8192,
    seeds: {
      let delivery = Delivery(time: 1, fileCount: 2, byteCount: 3, path: "/Inbox/com.example/ü")
      return [
        Seed("file", [0] + sampleFile().encoded), Seed("directory", [0] + sampleDirectory().encoded),
        Seed("link", [0] + sampleLink().encoded),
        Seed("entry", [1] + DirectoryEntry(kind: .file, file: 7).encoded),
        Seed("extent", [2] + sampleExtent(start: 0).encodedValue),
        Seed("slab", [3] + sampleSlab().encoded),
        Seed("counters", [4] + CatalogCounters(nextFile: 9, nextSlab: 1).encoded),
        Seed("delivery", [5] + delivery.encoded),
        Seed("key", [6] + CatalogKey.extent(file: 7, start: 3).bytes),
      ]
    },
    accepts: { bytes in
      let value = Array(bytes.dropFirst())
      switch bytes.first {
      case 0:
        guard let inode = try? Inode(value) else { return false }
        // A run tag is skipped, and not written.
        require(value[2] == 3 || inode.encoded == value, "an inode is written differently")
        require(inode.secret.count == Inode.secretByteCount, "a secret of another length")
        if let extent = inode.firstExtent {
          require(
            extent.offset + UInt64(extent.storedByteCount) <= SlabStore.byteCountMax,
            "an extent that does not lie in a slab")
        }
      case 1:
        guard let entry = try? DirectoryEntry(value) else { return false }
        require(entry.encoded == value, "a directory entry is written differently")
      case 2:
        guard let extent = try? extent(start: UInt64(value.count), value) else { return false }
        require(extent.encodedValue == value, "an extent is written differently")
        require(
          extent.offset + UInt64(extent.storedByteCount) <= SlabStore.byteCountMax,
          "an extent that does not lie in a slab")
      case 3:
        guard let counter = try? SlabCounter(value) else { return false }
        require(counter.encoded == value, "a slab counter is written differently")
      case 4:
        guard let counters = try? CatalogCounters(value) else { return false }
        require(counters.encoded == value, "the counters are written differently")
      case 5:
        guard let delivery = try? Delivery(value) else { return false }
        require(delivery.encoded == value, "a delivery is written differently")
      default:
        let key = CatalogKey(bytes: value)
        let next = CatalogKey(bytes: value + [0])
        require(key < next && !(next < key) && next.hasPrefix(key), "a key is not before what it begins")
        _ = (key.kind, key.number(at: 1), key.number(at: 9))
      }
      return true
    })

  private static func extent(start: UInt64, _ value: [UInt8]) throws -> Extent {
    var reader = ByteReader(value)
    let extent = try Extent(start: start, value: &reader)
    try reader.end()
    return extent
  }

  static func sampleExtent(start: UInt64) -> Extent {
    Extent(
      start: start, count: 2, lastLength: 100, writeNumber: WriteNumber(session: Known.session, counter: 5),
      slab: 0, offset: 4096)
  }

  static func sampleFile() -> Inode {
    var inode = Inode(kind: .file, permissions: 0o600, now: 1, epoch: 1, secret: Known.bytes(32, seed: 4))
    inode.size = 16484
    inode.firstExtent = sampleExtent(start: 0)
    return inode
  }

  static func sampleDirectory() -> Inode {
    Inode(
      kind: .directory, permissions: 0o700, now: 1, epoch: 1,
      secret: [UInt8](repeating: 0, count: Inode.secretByteCount))
  }

  static func sampleLink() -> Inode {
    var inode = sampleDirectory()
    inode.kind = .symbolicLink
    inode.target = Array("../there".utf8)
    inode.size = UInt64(inode.target.count)
    return inode
  }

  static func sampleSlab() -> SlabCounter {
    var counter = SlabCounter()
    counter.liveByteCount = 16566
    counter.end = 20662
    return counter
  }

  /// Some of each kind, in order of keys.
  static func sampleRecords() -> [(key: CatalogKey, value: [UInt8])] {
    [
      (.state, CatalogCounters(nextFile: 9, nextSlab: 1).encoded),
      (
        .entry(parent: rootFileID, name: FileName("note")!),
        DirectoryEntry(kind: .file, file: 7).encoded
      ),
      (.inode(rootFileID), sampleDirectory().encoded),
      (.inode(7), sampleFile().encoded),
      (.extent(file: 7, start: 4), sampleExtent(start: 4).encodedValue),
      (.slab(0), sampleSlab().encoded),
    ]
  }
}
