import EncryptedFile
import SodiumPrimitives

extension WriteBack {
  /// See ``Container/openFile(_:_:create:truncate:permissions:)``.
  func openFile(
    _ path: StorePath, _ access: OpenFile.Access, create: Bool, truncate: Bool, permissions: UInt16
  ) throws -> OpenFile {
    if store.mode == .readOnly, access != .read || create || truncate {
      throw ContainerError(.readOnly, path: path.text)
    }
    if truncate, access == .read {
      throw ContainerError(
        .invalidArgument, path: path.text, detail: "a file opened for reading is not emptied")
    }
    let node = try store.namingPath(path.text) {
      store.mode == .readOnly
        ? try store.withSnapshot { try sharedNode(of: $0.existingFile(path), at: path.text) }
        : try openedNode(path, create: create, permissions: permissions)
    }
    let file = OpenFile(self, node, path: path.text, access: access)
    if truncate { try file.truncate(to: 0) }
    return file
  }

  private func openedNode(_ place: StorePath, create: Bool, permissions: UInt16) throws -> FileNode {
    let exists = try store.withSnapshot { try $0.find(place.resolved(in: $0)) != nil }
    // The lookup runs in a transaction, so that the file cannot be removed before its node is
    // registered. Opening an existing file does not wait for durability.
    let durability = exists ? store.soon : store.options.durability
    return try store.transaction(durability: durability) { transaction in
      let place = try place.resolved(in: transaction)
      if let found = try transaction.find(place) {
        guard found.inode.kind == .file else {
          throw ContainerError(
            found.inode.kind == .directory ? .isADirectory : .cannotStore, path: place.text)
        }
        return try sharedNode(of: found, at: place.text)
      }
      guard create else { throw ContainerError(.noSuchFile, path: place.text) }
      guard !place.names.isEmpty, !place.namesDirectory else {
        throw ContainerError(.isADirectory, path: place.text)
      }
      let (directory, name) = try transaction.parent(of: place)
      let file = transaction.takeFileID()
      let inode = Inode(
        kind: .file, permissions: permissions & 0o7777, now: transaction.now, epoch: store.epoch,
        secret: Random.bytes(Inode.secretByteCount))
      transaction.put(file, inode)
      try transaction.link(directory, name, to: file, kind: .file)
      return try sharedNode(of: FoundFile(id: file, inode: inode), at: place.text)
    }
  }

  private func sharedNode(of found: FoundFile, at path: String) throws -> FileNode {
    try files.open(found.id) {
      FileNode(
        id: found.id, path: path, inode: found.inode, key: try store.fileKey(found.id, found.inode),
        tally: files.tally)
    }
  }
}
