import EncryptedFile

// Lookups by path in a snapshot. They open no contents and change nothing.

extension CatalogSnapshot {
  /// See ``ContainerReading/attributes(at:followingLinks:)``.
  func attributes(at path: StorePath, followingLinks: Bool) throws -> FileAttributes? {
    do {
      let location = try path.resolved(in: self, followingLast: followingLinks)
      return FileAttributes(try readable(location))
    } catch ContainerError.noSuchFile {
      return nil
    } catch ContainerError.notADirectory {
      return nil
    }
  }

  /// See ``ContainerReading/list(_:recursively:)``.
  func list(_ path: StorePath, recursively: Bool) throws -> [ListedFile] {
    let directory = try existingDirectory(path)
    if recursively { return try subtree(directory).map(ListedFile.init) }
    let entries = try entries(directory)
    let inodes = try inodes(entries.map(\.entry.file))
    return zip(entries, inodes).map { entry, inode in
      ListedFile(
        path: entry.name.description,
        attributes: FileAttributes(FoundFile(id: entry.entry.file, inode: inode)))
    }
  }

  /// See ``ContainerReading/names(in:)``.
  func names(in path: StorePath) throws -> [String] {
    var names: [String] = []
    try scan(.entries(parent: existingDirectory(path))) { key, _ in
      names.append(String(decoding: key.bytes.dropFirst(9), as: UTF8.self))
    }
    return names
  }

  /// See ``ContainerReading/destinationOfSymbolicLink(_:)``.
  func destinationOfSymbolicLink(_ path: StorePath) throws -> String {
    let found = try existing(path, followingLast: false)
    guard found.inode.kind == .symbolicLink else {
      throw ContainerError(.notASymbolicLink, path: path.text)
    }
    return String(decoding: found.inode.target, as: UTF8.self)
  }

  /// See ``ContainerReading/extendedAttributes(at:followingLinks:)``.
  func extendedAttributes(at path: StorePath, followingLinks: Bool) throws -> [String: [UInt8]] {
    let file = try existing(path, followingLast: followingLinks).id
    var found: [String: [UInt8]] = [:]
    try scan(.attributes(file: file)) { key, value in
      found[String(decoding: key.bytes.dropFirst(9), as: UTF8.self)] = value
    }
    return found
  }
}

extension CatalogReading {
  /// A file's extents, checked against each other and the file's size. Throws `fileDamaged` with
  /// the path.
  func checkedExtents(of file: FoundFile, at path: String) throws -> [Extent] {
    do {
      return try EncryptedFileReader.checked(extents(file.id, file.inode), size: file.inode.size)
    } catch {
      throw ContainerError.ofFile(at: path, error)
    }
  }
}
