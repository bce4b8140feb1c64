import EncryptedFile
import SodiumPrimitives

extension Container {
  // MARK: Links

  /// Makes a symbolic link; `target` is kept as it is and may name nothing. A relative one is seen from the link's directory, an
  /// absolute one from the container's root. Throws `fileExists`, `noSuchFile`, `invalidArgument` for a target of no bytes or more
  /// than 4096. With `replacing`, a file or link that is there goes in the same commit; for a directory, throws `isADirectory`.
  public func createSymbolicLink(_ path: String, to target: String, replacing: Bool = false) throws {
    let place = try StorePath(path)
    let bytes = Array(target.utf8)
    guard (1...Inode.targetByteCountMax).contains(bytes.count), !bytes.contains(0) else {
      throw ContainerError(
        bytes.isEmpty ? .noSuchFile : .invalidArgument, path: path,
        detail: "the target of a link has 1 to \(Inode.targetByteCountMax) bytes, none of them NUL")
    }
    try namingPath(path) {
      try transaction { transaction in
        let (directory, name) = try transaction.linkPlace(place, replacing: replacing)
        try transaction.makeSymbolicLink(directory, name, to: bytes)
      }
    }
  }

  /// Where a symbolic link leads, as it was written. Throws `notASymbolicLink`.
  public func destinationOfSymbolicLink(_ path: String) throws -> String {
    let place = try StorePath(path)
    return try namingPath(path) {
      try withSnapshot { records in
        let found = try records.existing(place, followingLast: false)
        guard found.inode.kind == .symbolicLink else { throw ContainerError(.notASymbolicLink, path: path) }
        return String(decoding: found.inode.target, as: UTF8.self)
      }
    }
  }

  /// Gives a file another name: contents and attributes are one, and go with the last name. A symbolic link gets another name itself.
  /// Throws `fileExists`, `isADirectory` for a directory. With `replacing`, another file or link that is there goes in the same commit.
  public func createLink(_ path: String, to existing: String, replacing: Bool = false) throws {
    let (place, other) = (try StorePath(path), try StorePath(existing))
    try namingPath(path) {
      try transaction { transaction in
        var found = try transaction.existing(other, followingLast: false)
        guard found.inode.kind != .directory else { throw ContainerError(.isADirectory, path: existing) }
        guard found.inode.linkCount < .max else { throw ContainerError(.invalidArgument, path: existing) }
        if replacing,
          try transaction.find(place.resolved(in: transaction, followingLast: false))?.id == found.id
        {
          return
        }
        let (directory, name) = try transaction.linkPlace(place, replacing: replacing)
        found.inode.linkCount += 1
        found.inode.changed = transaction.now
        transaction.put(found.id, found.inode)
        try transaction.link(directory, name, to: found.id, kind: found.inode.kind)
      }
    }
  }

  /// The path without links, `.` and `..`; what is missing at its end stays as it is.
  public func resolvedPath(_ path: String, followingLinks: Bool = true) throws -> String {
    let place = try StorePath(path)
    return try namingPath(path) {
      try withSnapshot {
        StorePath.text(try place.resolved(in: $0, followingLast: followingLinks).names)
      }
    }
  }

  // MARK: Replacing

  /// Puts one item in the place of another, in one commit. `backup` is a name for the old item beside it, which must be free. With
  /// `keepsMetadata` the new item gets the old one's permissions and date of creation. Throws `noSuchFile` when one of the two is missing,
  /// `moveIntoItself` when one is in the other, `fileExists` when something has the backup's name, and for paths that do not end with a
  /// name the same as ``remove(_:recursively:)``.
  public func replaceItem(
    at path: String, with newItem: String, backup: String? = nil, keepsMetadata: Bool = true
  ) throws {
    let (place, source) = (try StorePath(path), try StorePath(newItem))
    let backupName = try backup.map { text in
      guard let name = FileName(text) else { throw ContainerError(.invalidName, path: text) }
      return name
    }
    try namingPath(path) {
      // Else what was written to the new file before would set its date after this.
      try writeBack()
      try transaction { transaction in
        let place = try place.placeToLeave(in: transaction)
        let source = try source.placeToLeave(in: transaction)
        let (directory, name) = try transaction.parent(of: place)
        let (sourceDirectory, sourceName) = try transaction.parent(of: source)
        let old = try transaction.existing(place)
        var new = try transaction.existing(source)
        if place.names == source.names { return }
        if place.names.starts(with: source.names) || source.names.starts(with: place.names) {
          throw ContainerError(.moveIntoItself, path: newItem)
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
        // What went may have been another name of the same file.
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

  /// Names and values, none when nothing was set.
  public func extendedAttributes(at path: String, followingLinks: Bool = false) throws -> [String: [UInt8]] {
    let place = try StorePath(path)
    return try namingPath(path) {
      try withSnapshot { records in
        let file = try records.existing(place, followingLast: followingLinks).id
        var found: [String: [UInt8]] = [:]
        try records.scan(.attributes(file: file)) { key, value in
          found[String(decoding: key.bytes.dropFirst(9), as: UTF8.self)] = value
        }
        return found
      }
    }
  }

  /// Sets attributes beside those that are there, all in one commit; nil removes one. Throws `invalidName` for a name that has not 1
  /// to 255 bytes or differs from one that is there only in how its characters are composed, `invalidArgument` for a value of more than 32,768.
  public func setExtendedAttributes(
    _ changes: [String: [UInt8]?], at path: String, followingLinks: Bool = true
  ) throws {
    let place = try StorePath(path)
    try AttributeChanges(extended: changes).check(path)
    try namingPath(path) {
      try transaction { transaction in
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
  /// That no attribute is there whose name is equal to a new one, but not the same. Whoever asks for all would get only one of them.
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

  /// Where something new goes. Throws `fileExists` when something, or a link, is there.
  func freePlace(_ path: StorePath) throws -> (directory: UInt64, name: FileName) {
    let place = try path.resolved(in: self, followingLast: false)
    guard !place.names.isEmpty else { throw ContainerError(.fileExists, path: place.text) }
    let (directory, name) = try parent(of: place)
    if try entry(directory, name) != nil { throw ContainerError(.fileExists, path: place.text) }
    guard !place.namesDirectory else { throw ContainerError(.noSuchFile, path: place.text) }
    return (directory, name)
  }

  /// Where a link goes. With `replacing`, a file or link that is there is dropped.
  fileprivate func linkPlace(_ path: StorePath, replacing: Bool) throws -> (directory: UInt64, name: FileName)
  {
    let place = try path.resolved(in: self, followingLast: false)
    guard replacing, !place.names.isEmpty, !place.namesDirectory else { return try freePlace(path) }
    let (directory, name) = try parent(of: place)
    if let old = try entry(directory, name) {
      if old.kind == .directory { throw ContainerError(.isADirectory, path: place.text) }
      try dropFile(old.file)
    }
    return (directory, name)
  }

  @discardableResult
  func makeSymbolicLink(_ parent: UInt64, _ name: FileName, to target: [UInt8]) throws -> UInt64 {
    let file = takeFileID()
    var inode = Inode(
      kind: .symbolicLink, permissions: 0o777, now: now, epoch: epoch,
      secret: [UInt8](repeating: 0, count: Inode.secretByteCount))
    inode.target = target
    inode.size = UInt64(target.count)
    put(file, inode)
    try link(parent, name, to: file, kind: .symbolicLink)
    return file
  }

  /// Removes what has the name, if anything has, with everything below it.
  fileprivate func removeItem(_ parent: UInt64, _ name: FileName) throws {
    guard let entry = try entry(parent, name) else { return }
    if entry.kind == .directory {
      try dropSubtree(entry.file, subtree(entry.file))
    } else {
      try dropFile(entry.file)
    }
    try unlink(parent, name)
  }
}
