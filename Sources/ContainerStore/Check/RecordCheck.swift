/// Checks that each record has the form that the format pages define for its type, as far as the
/// checks of files and messages do not cover it.
struct RecordCheck {
  private let records: CatalogSnapshot

  init(_ records: CatalogSnapshot) { self.records = records }

  func findings() throws -> [Finding] {
    var findings: [Finding] = []
    var cursor = try records.cursor(from: CatalogKey(bytes: []))
    while let (key, value) = try cursor.nextLive() {
      do throws(MalformedBytes) { try check(key, value) } catch {
        findings.addInconsistency(
          "a record of type \(key.bytes.first.map { String($0, radix: 16) } ?? "none"): \(error.what)")
      }
    }
    return findings
  }

  private func check(_ key: CatalogKey, _ value: [UInt8]) throws(MalformedBytes) {
    switch key.kind {
    case .state:
      guard key == .state else { throw MalformedBytes(what: "a key with further bytes") }
      _ = try CatalogCounters(value)
    case .entry, .inode, .extent, .attribute, .pinOfFile, .queued, .queuedMessage:
      try checkID(key, at: 1)
    case .slab:
      guard key.bytes.count == 5, key.bytes[1] < 0x80 else { throw MalformedBytes(what: "no key of a slab") }
      _ = try SlabCounter(value)
    case .staging:
      try checkID(key, at: 1)
      guard key.bytes.count == 9 else { throw MalformedBytes(what: "a key with further bytes") }
      _ = try Staging.Record(value, sender: Staging.root[0])
    case .anchor:
      guard key.bytes.count == 9, let commit = key.number(at: 1), commit > 0, value.count == 40 else {
        throw MalformedBytes(what: "an anchor that cannot be")
      }
    default: break
    }
  }

  private func checkID(_ key: CatalogKey, at offset: Int) throws(MalformedBytes) {
    guard let id = key.number(at: offset), (1..<CatalogCounters.fileCountMax).contains(id) else {
      throw MalformedBytes(what: "an id that cannot be")
    }
  }
}
