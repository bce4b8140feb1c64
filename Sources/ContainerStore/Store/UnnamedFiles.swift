/// Files in a directory of the container that the catalog does not name.
struct UnnamedFiles {
  let directory: String
  /// Files that an opening for writing removes.
  let removableCount: Int
  /// Files that are not the container's.
  let foreignCount: Int

  /// The unnamed files of each directory. `slabs` are the slabs that the catalog names.
  static func find(in store: Store, slabs: some Sequence<UInt32>) throws -> [UnnamedFiles] {
    let slabNames = Set(slabs.map { String(SlabStore.name($0).dropFirst(5)) })
    return try store.withSuperblock { _, body, _ in
      let tables = Set(body.completeGeneration.tables.map(\.id.hex))
      let journals = Set(try store.catalogFiles.journalsInUse(body).map(\.hex))
      return try [
        ("catalog", tables), ("journal", journals), (CopiedFile.copyFolder, tables.union(journals)),
        ("slab", slabNames),
      ].map { directory, known in
        let unnamed = try store.io.readableFileNames(in: directory).filter { !known.contains($0) }
        let removableCount = unnamed.count { CatalogFiles.mayRemove($0, in: directory) }
        return UnnamedFiles(
          directory: directory, removableCount: removableCount,
          foreignCount: unnamed.count - removableCount)
      }
    }
  }
}
