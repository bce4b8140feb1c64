import EncryptedFile

extension FileTree {
  /// See ``Container/linkTree(_:to:)``.
  func linkTree(_ place: StorePath, to source: StorePath) throws {
    let path = place.text
    try store.namingPath(path) {
      try store.transaction { transaction in
        let from = try source.resolved(in: transaction, followingLast: false)
        let to = try place.resolved(in: transaction, followingLast: false)
        let top = try transaction.existing(from)
        guard top.inode.kind == .directory else {
          let (directory, name) = try transaction.freePlace(place)
          return try transaction.linkAgain(top.id, directory, name)
        }
        if to.names.starts(with: from.names) {
          throw ContainerError(from.names == to.names ? .fileExists : .moveIntoItself, path: path)
        }
        let below = try transaction.subtree(top.id)
        let existing: FoundFile?
        do { existing = try transaction.find(to) } catch ContainerError.noSuchFile { existing = nil }
        guard existing == nil else { throw ContainerError(.fileExists, path: path) }
        for item in [([], top)] + below {
          let names = to.names + item.names
          if item.file.inode.kind == .directory {
            let directory = try transaction.directory(
              names, path: path, permissions: item.file.inode.permissions)
            try transaction.copyAttributes(of: item.file.id, to: directory)
          } else {
            let directory = try transaction.directory(names.dropLast(), path: path)
            try transaction.linkAgain(item.file.id, directory, names.last!)
          }
        }
      }
    }
  }

  /// See ``Container/move(_:into:)``.
  func move(_ from: StorePath, into to: StorePath) throws -> String {
    let (source, directory) = (from.text, to.text)
    return try store.namingPath(source) {
      try store.transaction { transaction in
        let from = try from.placeToLeave(in: transaction)
        let to = try to.resolved(in: transaction)
        let (oldParent, oldName) = try transaction.parent(of: from)
        let found = try transaction.existing(from)
        if to.names.starts(with: from.names) { throw ContainerError(.moveIntoItself, path: source) }
        let parent = try transaction.directory(to.names, path: directory)
        if parent == oldParent { return StorePath.text(from.names) }
        var (name, number) = (oldName, 2)
        while try transaction.entry(parent, name) != nil {
          name = oldName.numbered(number)
          number += 1
        }
        try transaction.unlink(oldParent, oldName)
        try transaction.link(parent, name, to: found.id, kind: found.inode.kind)
        return StorePath.text(to.names + [name])
      }
    }
  }
}

extension Transaction {
  fileprivate func linkAgain(_ file: UInt64, _ directory: UInt64, _ name: FileName) throws {
    let inode = try inode(file)
    guard inode.kind != .symbolicLink else {
      return try copyAttributes(of: file, to: makeSymbolicLink(directory, name, to: inode.target))
    }
    try addName(of: file, directory, name)
  }
}

extension FileName {
  /// `note.txt` becomes `note 2.txt`; a name that would be too long loses characters of its stem.
  fileprivate func numbered(_ number: Int) -> FileName {
    let dot = bytes.lastIndex(of: UInt8(ascii: "."))
    let suffix = dot.map { $0 > 0 && bytes.count - $0 <= 32 ? Array(bytes[$0...]) : [] } ?? []
    var stem = Array(bytes.dropLast(suffix.count))
    let tail = Array(" \(number)".utf8) + suffix
    while stem.count + tail.count > Self.byteCountMax {
      // Remove whole UTF-8 characters.
      while let last = stem.popLast(), last & 0xC0 == 0x80 {}
    }
    return FileName(bytes: stem + tail)!
  }
}
