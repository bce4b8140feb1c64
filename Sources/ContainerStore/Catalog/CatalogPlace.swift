/// A directory and a name in it.
struct CatalogPlace: Hashable {
  var parent: UInt64
  var name: FileName

  init(parent: UInt64, name: FileName) {
    self.parent = parent
    self.name = name
  }

  /// Decodes the key of a record of type `10`.
  init(_ key: CatalogKey) throws {
    guard let parent = key.number(at: 1), let name = FileName(bytes: Array(key.bytes.dropFirst(9))) else {
      throw ContainerError(.catalogDamaged, detail: "a directory entry with an impossible name")
    }
    self.init(parent: parent, name: name)
  }
}
