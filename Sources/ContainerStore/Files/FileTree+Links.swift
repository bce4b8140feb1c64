import EncryptedFile
import SodiumPrimitives

extension FileTree {
  // MARK: Links

  /// See ``Container/createSymbolicLink(_:to:replacing:)``.
  func createSymbolicLink(_ place: StorePath, to target: String, replacing: Bool) throws {
    let path = place.text
    let bytes = Array(target.utf8)
    guard (1...Inode.targetByteCountMax).contains(bytes.count), !bytes.contains(0) else {
      throw ContainerError(
        bytes.isEmpty ? .noSuchFile : .invalidArgument, path: path,
        detail: "the target of a link has 1 to \(Inode.targetByteCountMax) bytes, none of them NUL")
    }
    try store.namingPath(path) {
      try store.transaction { transaction in
        let (directory, name) = try transaction.linkPlace(place, replacing: replacing)
        try transaction.makeSymbolicLink(directory, name, to: bytes)
      }
    }
  }

  /// See ``Container/createLink(_:to:replacing:)``.
  func createLink(_ place: StorePath, to other: StorePath, replacing: Bool) throws {
    try store.namingPath(place.text) {
      try store.transaction { transaction in
        let found = try transaction.existing(other, followingLast: false)
        guard found.inode.kind != .directory else { throw ContainerError(.isADirectory, path: other.text) }
        if replacing,
          try transaction.find(place.resolved(in: transaction, followingLast: false))?.id == found.id
        {
          return
        }
        let (directory, name) = try transaction.linkPlace(place, replacing: replacing)
        try transaction.addName(of: found.id, directory, name)
      }
    }
  }

  // MARK: Replacing

  /// See ``Container/replaceItem(at:with:backup:keepsMetadata:)``.
  func replaceItem(
    at place: StorePath, with source: StorePath, backup: String?, keepsMetadata: Bool
  ) throws {
    let path = place.text
    let backupName = try backup.map { text in
      guard let name = FileName(text) else { throw ContainerError(.invalidName, path: text) }
      return name
    }
    try store.namingPath(path) {
      try store.transaction { transaction in
        let place = try place.placeToLeave(in: transaction)
        let source = try source.placeToLeave(in: transaction)
        let (directory, name) = try transaction.parent(of: place)
        let (sourceDirectory, sourceName) = try transaction.parent(of: source)
        let old = try transaction.existing(place)
        var new = try transaction.existing(source)
        if place.names == source.names { return }
        if place.names.starts(with: source.names) || source.names.starts(with: place.names) {
          throw ContainerError(.moveIntoItself, path: source.text)
        }
        if let backupName {
          guard try transaction.entry(directory, backupName) == nil else {
            throw ContainerError(.fileExists, path: path, detail: "something has the backup's name")
          }
          try transaction.link(directory, backupName, to: old.id, kind: old.inode.kind)
          transaction.delete(.entry(parent: directory, name: name))
        } else {
          try transaction.removeItem(directory, name)
        }
        try transaction.unlink(sourceDirectory, sourceName)
        try transaction.link(directory, name, to: new.id, kind: new.inode.kind)
        // The item that was removed may have been another name of the same file.
        new.inode = try transaction.inode(new.id)
        if keepsMetadata {
          new.inode.permissions = old.inode.permissions
          new.inode.created = old.inode.created
        }
        new.inode.changed = transaction.now
        transaction.put(new.id, new.inode)
      }
    }
  }

  // MARK: Extended attributes

  /// See ``Container/setExtendedAttributes(_:at:followingLinks:)``.
  func setExtendedAttributes(
    _ changes: [String: [UInt8]?], at place: StorePath, followingLinks: Bool
  ) throws {
    let path = place.text
    try AttributeChanges(extended: changes).check(path)
    try store.namingPath(path) {
      try store.transaction { transaction in
        var found = try transaction.existing(place, followingLast: followingLinks)
        try transaction.checkNames(of: changes, for: found.id, at: path)
        for (name, value) in changes {
          transaction.putAttribute(of: found.id, Array(name.utf8), value)
        }
        found.inode.changed = transaction.now
        transaction.put(found.id, found.inode)
      }
    }
  }
}

extension Transaction {
  /// Checks that no existing attribute has a name that is equal to a new one but differs in its
  /// bytes: a caller that reads all attributes would receive only one of the two.
  func checkNames(of changes: [String: [UInt8]?], for file: UInt64, at path: String) throws {
    guard !changes.isEmpty else { return }
    try scan(.attributes(file: file)) { key, _ in
      let bytes = key.bytes.dropFirst(9)
      let name = String(decoding: bytes, as: UTF8.self)
      guard let other = changes.keys.first(where: { $0 == name }), !other.utf8.elementsEqual(bytes) else {
        return
      }
      throw ContainerError(
        .invalidName, path: path,
        detail: "an attribute whose name differs only in how its characters are composed is there")
    }
  }

  /// The directory and name of a new item. Throws `fileExists` if an item, or a link, is at the
  /// path.
  func freePlace(_ path: StorePath) throws -> (directory: UInt64, name: FileName) {
    let place = try path.resolved(in: self, followingLast: false)
    guard !place.names.isEmpty else { throw ContainerError(.fileExists, path: place.text) }
    let (directory, name) = try parent(of: place)
    if try entry(directory, name) != nil { throw ContainerError(.fileExists, path: place.text) }
    guard !place.namesDirectory else { throw ContainerError(.noSuchFile, path: place.text) }
    return (directory, name)
  }

  /// The directory and name of a new link. With `replacing`, a file or link may have the name.
  fileprivate func linkPlace(_ path: StorePath, replacing: Bool) throws -> (directory: UInt64, name: FileName)
  {
    let place = try path.resolved(in: self, followingLast: false)
    guard replacing, !place.names.isEmpty, !place.namesDirectory else { return try freePlace(path) }
    let (directory, name) = try parent(of: place)
    if try entry(directory, name)?.kind == .directory {
      throw ContainerError(.isADirectory, path: place.text)
    }
    return (directory, name)
  }

  /// Makes a symbolic link in the place of what has the name.
  @discardableResult
  func makeSymbolicLink(_ parent: UInt64, _ name: FileName, to target: [UInt8]) throws -> UInt64 {
    let file = takeFileID()
    var inode = Inode(
      kind: .symbolicLink, permissions: 0o777, now: now, epoch: epoch,
      secret: [UInt8](repeating: 0, count: Inode.secretByteCount))
    inode.target = target
    inode.size = UInt64(target.count)
    put(file, inode)
    try replace(parent, name, with: file, kind: .symbolicLink)
    return file
  }

  /// Removes the item with a name, if there is one, and everything below it.
  fileprivate func removeItem(_ parent: UInt64, _ name: FileName) throws {
    guard let entry = try entry(parent, name) else { return }
    if entry.kind == .directory {
      try dropSubtree(entry.file)
    } else {
      try dropFile(entry.file)
    }
    try unlink(parent, name)
  }
}
