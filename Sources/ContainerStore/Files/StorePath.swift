/// A parsed path in a container.
struct StorePath {
  /// The names of the path, from the root on; nil stands for `..`.
  private(set) var parts: [FileName?]
  /// The path as given, for errors.
  var text: String
  /// The path ended with a slash or `.`, so it must lead to a directory.
  var namesDirectory: Bool
  /// The path's last part is `.` or `..`, which is not the name of the item that the path leads to.
  private var endsWithDots = false
  /// The path began with a slash, which matters for the target of a link.
  private var isAbsolute: Bool

  private static let linkCountMax = 40

  /// Parses a path. A relative path begins at the root; `.` and empty parts are skipped. Throws
  /// `invalidName`, or `noSuchFile` for an empty path.
  init(_ text: String) throws {
    guard !text.isEmpty else { throw ContainerError(.noSuchFile, path: text) }
    var parts: [FileName?] = []
    for part in text.utf8.split(separator: UInt8(ascii: "/")) {
      let bytes = Array(part)
      endsWithDots = bytes == Array(".".utf8) || bytes == Array("..".utf8)
      if endsWithDots {
        if bytes.count == 2 { parts.append(nil) }
        continue
      }
      guard let name = FileName(bytes: bytes) else {
        throw ContainerError(.invalidName, path: text, detail: "a name of \(bytes.count) bytes")
      }
      parts.append(name)
    }
    self.parts = parts
    self.text = text
    namesDirectory = text.utf8.last == UInt8(ascii: "/") || text == "." || text.hasSuffix("/.")
    isAbsolute = text.utf8.first == UInt8(ascii: "/")
  }

  static func text(_ names: [FileName]) -> String { "/" + names.map(\.description).joined(separator: "/") }
}

/// A path without links and `..`: names from the root on. The names at its end need not exist.
struct ResolvedPath {
  var names: [FileName]
  /// The path as given, for errors.
  var text: String
  var namesDirectory: Bool

  init(_ names: [FileName], text: String? = nil, namesDirectory: Bool = false) {
    self.names = names
    self.text = text ?? StorePath.text(names)
    self.namesDirectory = namesDirectory
  }

  /// The path of the directory that contains the last name; nil for the root.
  var parent: ResolvedPath? { names.isEmpty ? nil : ResolvedPath(names.dropLast(), text: text) }
}

extension StorePath {
  /// Resolves links and `..` as POSIX does. Links in the middle are followed; a link at the end is
  /// followed if `followingLast` is set or a slash follows the link. `..` stands for the parent of
  /// the directory reached so far; the parent of the root is the root. Throws `notADirectory`,
  /// `tooManyLinks`, and `noSuchFile` if `..` follows a name that does not exist.
  func resolved(in catalog: some CatalogReading, followingLast: Bool = true) throws -> ResolvedPath {
    try followed(in: catalog, followingLast: followingLast).path
  }

  /// The path of an item to move or remove; a link is not followed. Throws like `resolved`, and
  /// `invalidArgument` if the path ends with `.` or `..`, which is not the item's name. A slash at
  /// the end is allowed only for a directory, which `existing` checks.
  func placeToLeave(in catalog: some CatalogReading) throws -> ResolvedPath {
    guard !endsWithDots else {
      throw ContainerError(.invalidArgument, path: text, detail: "the path does not end with a name")
    }
    var path = self
    path.namesDirectory = false
    var place = try path.resolved(in: catalog, followingLast: false)
    place.namesDirectory = namesDirectory
    return place
  }

  /// Resolves the path as `resolved` does, and returns the item at its end if the whole path
  /// exists.
  fileprivate func followed(in catalog: some CatalogReading, followingLast: Bool) throws -> (
    path: ResolvedPath, end: (file: UInt64, kind: FileKind)?
  ) {
    var reached: [(name: FileName, file: UInt64, kind: FileKind)] = []
    var pending = [FileName?](parts.reversed())
    var (linkCount, namesDirectory) = (0, namesDirectory)
    while let part = pending.popLast() {
      if let last = reached.last, last.kind != .directory { throw ContainerError(.notADirectory, path: text) }
      guard let name = part else {
        _ = reached.popLast()
        continue
      }
      guard let entry = try catalog.entry(reached.last?.file ?? rootFileID, name) else {
        let missing = pending.reversed().compactMap { $0 }
        guard missing.count == pending.count else { throw ContainerError(.noSuchFile, path: text) }
        let names = reached.map(\.name) + [name] + missing
        return (ResolvedPath(names, text: text, namesDirectory: namesDirectory), nil)
      }
      guard entry.kind == .symbolicLink, followingLast || namesDirectory || !pending.isEmpty else {
        reached.append((name, entry.file, entry.kind))
        continue
      }
      linkCount += 1
      guard linkCount <= Self.linkCountMax else { throw ContainerError(.tooManyLinks, path: text) }
      let target = try StorePath(String(decoding: catalog.inode(entry.file).target, as: UTF8.self))
      if target.isAbsolute { reached = [] }
      if pending.isEmpty { namesDirectory = namesDirectory || target.namesDirectory }
      pending += target.parts.reversed()
    }
    return (
      ResolvedPath(reached.map(\.name), text: text, namesDirectory: namesDirectory),
      reached.last.map { ($0.file, $0.kind) } ?? (rootFileID, .directory)
    )
  }
}

extension CatalogReading {
  /// The file at a path, or nil if the last name does not exist. Throws `noSuchFile` or
  /// `notADirectory` for the names before the last one.
  func find(_ path: ResolvedPath) throws -> FoundFile? {
    guard let end = try end(of: path) else { return nil }
    return FoundFile(id: end.file, inode: try inode(end.file))
  }

  /// What the last entry of a path says, or nil if the last name does not exist.
  private func end(of path: ResolvedPath) throws -> (file: UInt64, kind: FileKind)? {
    var (file, kind) = (rootFileID, FileKind.directory)
    for (i, name) in path.names.enumerated() {
      guard kind == .directory else { throw ContainerError(.notADirectory, path: path.text) }
      guard let entry = try entry(file, name) else {
        if i == path.names.count - 1 { return nil }
        throw ContainerError(.noSuchFile, path: path.text)
      }
      (file, kind) = (entry.file, entry.kind)
    }
    if path.namesDirectory, kind != .directory { throw ContainerError(.notADirectory, path: path.text) }
    return (file, kind)
  }

  func existing(_ path: ResolvedPath) throws -> FoundFile {
    guard let found = try find(path) else { throw ContainerError(.noSuchFile, path: path.text) }
    return found
  }

  /// The number of a directory. Its record is not read: what is below a directory whose record is lost is there all the same.
  func existingDirectory(_ path: ResolvedPath) throws -> UInt64 {
    guard let end = try end(of: path) else { throw ContainerError(.noSuchFile, path: path.text) }
    guard end.kind == .directory else { throw ContainerError(.notADirectory, path: path.text) }
    return end.file
  }

  /// The file at a path that may contain links, found in one walk. Throws `noSuchFile` if it does
  /// not exist.
  func existing(_ path: StorePath, followingLast: Bool = true) throws -> FoundFile {
    let file = try existingEnd(path, followingLast: followingLast).file
    return FoundFile(id: file, inode: try inode(file))
  }

  private func existingEnd(_ path: StorePath, followingLast: Bool) throws -> (file: UInt64, kind: FileKind) {
    let (place, end) = try path.followed(in: self, followingLast: followingLast)
    guard let end else { throw ContainerError(.noSuchFile, path: path.text) }
    if place.namesDirectory, end.kind != .directory {
      throw ContainerError(.notADirectory, path: path.text)
    }
    return end
  }

  func existingFile(_ path: StorePath) throws -> FoundFile {
    let found = try existing(path)
    guard found.inode.kind == .file else {
      throw ContainerError(found.inode.kind == .directory ? .isADirectory : .cannotStore, path: path.text)
    }
    return found
  }

  /// The number of a directory; its record is not read.
  func existingDirectory(_ path: StorePath) throws -> UInt64 {
    let end = try existingEnd(path, followingLast: true)
    guard end.kind == .directory else { throw ContainerError(.notADirectory, path: path.text) }
    return end.file
  }

  /// The directory that contains a path's last name, and that name. Throws `invalidArgument` for
  /// the root.
  func parent(of path: ResolvedPath) throws -> (directory: UInt64, name: FileName) {
    guard let name = path.names.last, let parent = path.parent else {
      throw ContainerError(.invalidArgument, path: path.text, detail: "the root directory stays")
    }
    return (try existingDirectory(parent), name)
  }
}
