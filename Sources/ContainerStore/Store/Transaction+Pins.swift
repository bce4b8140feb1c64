import EncryptedFile

extension Transaction {
  /// Pins the current version of a file for a message in the outbox. `extents` are all its extents,
  /// checked.
  func pin(_ found: FoundFile, extents: [Extent], path: [UInt8], as pin: Pin) {
    put(.pinned(pin), PinnedFile(file: found.id, path: path, inode: found.inode).encoded)
    for extent in extents.dropFirst() { put(.pinnedExtent(pin, start: extent.start), extent.encodedValue) }
    put(.pin(ofFile: found.id, pin), [])
  }

  /// Removes a pin. Runs that neither the file nor another pin needs are freed.
  func unpin(_ pin: Pin) throws {
    let pinned = try pinnedFile(pin)
    let extents = try extents(of: pinned, pin)
    for extent in extents.dropFirst() { delete(.pinnedExtent(pin, start: extent.start)) }
    delete(.pinned(pin))
    delete(.pin(ofFile: pinned.file, pin))
    var rest = extents
    if let bytes = try value(.inode(pinned.file)) {
      let inode = try Self.decode(bytes) { bytes throws(MalformedBytes) in try Inode(bytes) }
      rest = ExtentMap(checked: try self.extents(pinned.file, inode)).parted(rest).unknown
    }
    letGo(try unpinned(rest, of: pinned.file), of: pinned.file)
  }
}
