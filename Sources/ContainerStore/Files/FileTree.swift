import EncryptedFile
import SodiumPrimitives

/// Changes of files and folders by path. Each change is one commit.
///
/// Some operations depend on bytes written to open files; the caller stores these bytes first.
struct FileTree {
  let store: Store

  // MARK: Contents

  /// See ``Container/write(_:to:permissions:attributes:followingLinks:)``.
  func write(
    to path: StorePath, permissions: UInt16, attributes: AttributeChanges = AttributeChanges(),
    followingLinks: Bool = true,
    _ fill: (inout EncryptedFileWriter) throws -> Void
  ) throws {
    // Check the location before anything is sealed.
    _ = try store.withSnapshot { try location(of: path, in: $0, followingLinks: followingLinks) }
    let file = store.newFile()
    try store.namingPath(path.text) {
      let (size, stored) = try seal(file, fill)
      try store.transaction(storing: stored) { transaction in
        let (parent, name) = try location(of: path, in: transaction, followingLinks: followingLinks)
        var inode = Inode(
          kind: .file, permissions: permissions, now: transaction.now, epoch: store.epoch,
          secret: file.secret)
        inode.size = size
        transaction.putFile(file.id, inode, extents: stored)
        try transaction.replace(parent, name, with: file.id, kind: .file)
        try transaction.apply(attributes, to: file.id)
      }
    }
  }

  private func seal(
    _ file: NewFile, _ fill: (inout EncryptedFileWriter) throws -> Void
  ) throws -> (size: UInt64, stored: [Extent]) {
    try store.workers.withContext { context in
      var writer = try EncryptedFileWriter(
        key: store.fileKey(file), cipher: context.cipher, takeNumbers: store.session.take,
        store: { [slabs = store.slabs] in try slabs.append($0) })
      do {
        try fill(&writer)
        try writer.finish()
      } catch {
        store.slabs.discard(writer.extents)
        throw error
      }
      return (writer.size, writer.extents)
    }
  }

  /// The directory and the name of the file to write, after checking that a file can be there.
  private func location(
    of path: StorePath, in catalog: some CatalogReading, followingLinks: Bool
  ) throws -> (directory: UInt64, name: FileName) {
    let path = try path.resolved(in: catalog, followingLast: followingLinks)
    guard !path.names.isEmpty, !path.namesDirectory else {
      throw ContainerError(.isADirectory, path: path.text)
    }
    let (directory, name) = try catalog.parent(of: path)
    if try catalog.entry(directory, name)?.kind == .directory {
      throw ContainerError(.isADirectory, path: path.text)
    }
    return (directory, name)
  }

  // MARK: Items

  /// See ``Container/createDirectory(_:withIntermediateDirectories:permissions:attributes:)``.
  func createDirectory(
    _ path: StorePath, withIntermediateDirectories: Bool, permissions: UInt16,
    attributes: AttributeChanges
  ) throws {
    let text = path.text
    try attributes.check(text)
    try store.namingPath(text) {
      try store.transaction { transaction in
        // With intermediates, a link to a directory counts as a directory.
        var place = try path.resolved(in: transaction, followingLast: withIntermediateDirectories)
        place.namesDirectory = false
        let existing: FoundFile?
        do { existing = try transaction.find(place) } catch ContainerError.noSuchFile { existing = nil }
        if let found = existing {
          if withIntermediateDirectories, found.inode.kind == .directory { return }
          throw ContainerError(.fileExists, path: text)
        }
        guard let name = place.names.last else { throw ContainerError(.fileExists, path: text) }
        let parent =
          withIntermediateDirectories
          ? try transaction.directory(place.names.dropLast(), path: text, attributes: attributes)
          : try transaction.parent(of: place).directory
        let directory = transaction.takeFileID()
        try transaction.makeDirectory(parent, name, id: directory, permissions: permissions)
        try transaction.apply(attributes, to: directory)
      }
    }
  }

  /// See ``Container/remove(_:recursively:)``.
  func remove(_ path: StorePath, recursively: Bool) throws {
    let text = path.text
    try store.namingPath(text) {
      try store.transaction { transaction in
        let place = try path.placeToLeave(in: transaction)
        let (parent, name) = try transaction.parent(of: place)
        let found = try transaction.existing(place)
        if found.inode.kind == .directory {
          guard try recursively || transaction.entries(found.id).isEmpty else {
            throw ContainerError(.directoryNotEmpty, path: text)
          }
          try transaction.dropSubtree(found.id)
        } else {
          try transaction.dropFile(found.id)
        }
        try transaction.unlink(parent, name)
      }
    }
  }

  /// See ``Container/move(_:to:replacing:)``.
  func move(_ from: StorePath, to destination: String, replacing: Bool) throws {
    try store.namingPath(from.text) {
      try store.transaction { transaction in
        let from = try from.placeToLeave(in: transaction)
        let (oldParent, oldName) = try transaction.parent(of: from)
        let to: ResolvedPath
        do {
          to = try StorePath(destination).resolved(in: transaction, followingLast: false)
        } catch ContainerError.invalidName {
          _ = try transaction.existing(from)
          throw ContainerError(.invalidName, path: destination)
        }
        let place = to.names.isEmpty ? nil : try transaction.parent(of: to)
        let found = try transaction.existing(from)
        guard let (newParent, newName) = place else { throw ContainerError(.invalidArgument, path: to.text) }
        if found.inode.kind != .directory, to.namesDirectory {
          throw ContainerError(.notADirectory, path: destination)
        }
        if found.inode.kind == .directory, to.names.starts(with: from.names), from.names != to.names {
          throw ContainerError(.moveIntoItself, path: destination)
        }
        if oldParent == newParent, oldName == newName { return }
        if let existing = try transaction.entry(newParent, newName) {
          guard replacing, existing.kind != .directory, found.inode.kind != .directory else {
            throw ContainerError(.fileExists, path: destination)
          }
          // If both are names of one file, the file keeps the other name.
          try transaction.dropFile(existing.file)
        }
        try transaction.unlink(oldParent, oldName)
        try transaction.link(newParent, newName, to: found.id, kind: found.inode.kind)
      }
    }
  }

  /// See ``Container/setAttributes(_:at:)``.
  func setAttributes(_ changes: AttributeChanges, at path: StorePath) throws {
    try store.namingPath(path.text) {
      try store.transaction { transaction in
        let file = try transaction.existing(path).id
        try transaction.checkNames(of: changes.extended, for: file, at: path.text)
        try transaction.apply(changes, to: file)
      }
    }
  }
}
