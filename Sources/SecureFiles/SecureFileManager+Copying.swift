import ContainerStore
public import Foundation

extension SecureFileManager {
  /// Foundation's own type, for code in which `FileManager` is an alias.
  public typealias ItemReplacementOptions = FileManager.ItemReplacementOptions

  // MARK: Copying and linking

  /// Copies a file, link or directory with everything below it, with permissions, dates of contents and extended attributes; links are not followed.
  /// Without a delegate in one commit, with one item by item. Throws `CocoaError` with `fileReadNoSuchFile`, also with a delegate,
  /// `fileWriteFileExists`, `fileNoSuchFile` when the directory is missing that a file is copied into; for a directory it is made.
  public func copyItem(atPath srcPath: String, toPath dstPath: String) throws {
    try transfer(.copying, NamedItem(path: srcPath), NamedItem(path: dstPath))
  }

  /// ``copyItem(atPath:toPath:)`` for URLs.
  public func copyItem(at srcURL: URL, to dstURL: URL) throws {
    try transfer(.copying, named(srcURL, .reading), named(dstURL, .writing))
  }

  /// Gives a file another name. A symbolic link is copied; a directory is made anew, and the files below it get other names. Else as
  /// ``copyItem(atPath:toPath:)``.
  public func linkItem(atPath srcPath: String, toPath dstPath: String) throws {
    try transfer(.linking, NamedItem(path: srcPath), NamedItem(path: dstPath))
  }

  /// ``linkItem(atPath:toPath:)`` for URLs.
  public func linkItem(at srcURL: URL, to dstURL: URL) throws {
    try transfer(.linking, named(srcURL, .reading), named(dstURL, .writing))
  }

  private func named(_ url: URL, _ access: FileAccess) throws -> NamedItem {
    NamedItem(path: try path(for: url, access), url: url)
  }

  private func transfer(_ action: ItemAction, _ source: NamedItem, _ destination: NamedItem) throws {
    let steps = ItemSteps(manager: self, delegate: delegate, action: action)
    let found: FileAttributes
    do {
      found = try existing(placeOfItem(source.path))
    } catch {
      throw steps.translated(error, source, destination, .reading)
    }
    guard steps.delegate != nil, found.kind == .directory else {
      _ = try steps.run(source, destination) { try transferWhole(action, source, destination) }
      return
    }
    try transferEach(steps, source, destination, found)
  }

  /// In one commit.
  private func transferWhole(_ action: ItemAction, _ source: NamedItem, _ destination: NamedItem) throws {
    let (from, to) = (try placeOfItem(source.path), place(destination.path))
    if action == .copying {
      try store.copy(from, to: to, makingParents: true)
    } else {
      try store.linkTree(to, to: from)
    }
  }

  private func transferEach(
    _ steps: ItemSteps, _ source: NamedItem, _ destination: NamedItem, _ found: FileAttributes
  ) throws {
    var open = [(source, destination, found)]
    var made: [(place: String, modified: Int64)] = []
    while let (source, destination, found) = open.popLast() {
      guard steps.mayBegin(source, destination) else { continue }
      guard found.kind == .directory else {
        _ = try steps.finish(source, destination) { try transferWhole(steps.action, source, destination) }
        continue
      }
      let (from, to) = (place(source.path), place(destination.path))
      var items: [ListedFile] = []
      let isMade = try steps.finish(source, destination) {
        items = try store.list(from)
        try requireOutside(from, to)
        try store.createDirectory(
          to, withIntermediateDirectories: store.attributes(at: to) == nil,
          attributes: AttributeChanges(
            permissions: found.permissions, extended: store.extendedAttributes(at: from).mapValues { $0 }))
      }
      if isMade { made.append((to, found.modified)) }
      // The error may have been that the directory is there: then the two are merged.
      guard isMade || (try? store.attributes(at: to))??.kind == .directory else { continue }
      for item in items.reversed() {
        let isDirectory = item.attributes.kind == .directory
        open.append(
          (
            source.child(item.path, isDirectory: isDirectory),
            destination.child(item.path, isDirectory: isDirectory), item.attributes
          ))
      }
    }
    guard steps.action == .copying else { return }
    // Now that nothing more is put into them.
    for (directory, modified) in made {
      try writing(directory) { try store.setAttributes(AttributeChanges(modified: modified), at: $0) }
    }
  }

  private func requireOutside(_ source: String, _ destination: String) throws {
    let inside = try store.resolvedPath(destination, followingLinks: false)
    let outside = try store.resolvedPath(source, followingLinks: false)
    if inside.utf8.elementsEqual(outside.utf8) { throw SecureFilesError(.fileExists, path: destination) }
    if inside.utf8.starts(with: (outside == "/" ? "/" : outside + "/").utf8) {
      throw SecureFilesError(.moveIntoItself, path: destination)
    }
  }

  // MARK: Moving

  /// Moves or renames an item, never copying it. A delegate is asked once, with absolute paths. Throws `CocoaError` with
  /// `fileNoSuchFile`, `fileWriteFileExists`.
  public func moveItem(atPath srcPath: String, toPath dstPath: String) throws {
    try move(
      NamedItem(path: place(srcPath)),
      NamedItem(path: dstPath.isEmpty ? currentDirectoryPath : place(dstPath)))
  }

  /// ``moveItem(atPath:toPath:)`` for URLs.
  public func moveItem(at srcURL: URL, to dstURL: URL) throws {
    try move(named(srcURL, .writing), named(dstURL, .writing))
  }

  private func move(_ source: NamedItem, _ destination: NamedItem) throws {
    _ = try ItemSteps(manager: self, delegate: delegate, action: .moving).run(source, destination) {
      let to = place(destination.path)
      // Before the source is looked for, as in Foundation; what is moved to its own place is in its own way. A path that cannot be is
      // found out only after the source was.
      if (try? store.attributes(at: to.withoutTrailingSlashes)) != nil {
        throw SecureFilesError(.fileExists, path: to)
      }
      try store.move(placeToLeave(source.path), to: to)
    }
  }

  // MARK: Removing

  /// Removes a file, a link, or a directory with everything in it: without a delegate in one commit, with one item by item, and what it
  /// refuses stays. Throws `CocoaError` with `fileNoSuchFile`.
  public func removeItem(atPath path: String) throws { try remove(NamedItem(path: path)) }

  /// ``removeItem(atPath:)`` for a URL.
  public func removeItem(at url: URL) throws { try remove(named(url, .writing)) }

  private func remove(_ item: NamedItem) throws {
    let steps = ItemSteps(manager: self, delegate: delegate, action: .removing)
    guard steps.delegate != nil, let place = try? placeToLeave(item.path),
      let found = try? store.attributes(at: place), found.kind == .directory
    else {
      _ = try steps.run(item, item) { try store.remove(placeToLeave(item.path)) }
      return
    }
    try removeEach(steps, NamedItem(path: place, url: item.url))
  }

  private func removeEach(_ steps: ItemSteps, _ item: NamedItem) throws {
    enum Step {
      case asking(NamedItem, isDirectory: Bool)
      case removing(NamedItem)
    }
    var open = [Step.asking(item, isDirectory: true)]
    while let step = open.popLast() {
      switch step {
      case .removing(let item), .asking(let item, isDirectory: false):
        if case .asking = step, !steps.mayBegin(item, item) { continue }
        _ = try steps.finish(item, item) { try store.remove(place(item.path), recursively: false) }
      case .asking(let item, isDirectory: true):
        var items: [ListedFile] = []
        let isListed = try steps.run(item, item) { items = try store.list(place(item.path)) }
        guard isListed else { continue }
        open.append(.removing(item))
        for file in items.reversed() {
          let isDirectory = file.attributes.kind == .directory
          open.append(.asking(item.child(file.path, isDirectory: isDirectory), isDirectory: isDirectory))
        }
      }
    }
  }

  // MARK: Replacing

  /// Puts the new item in the place of the original, in one commit: all or nothing, and nothing is lost when it fails. It gets the
  /// original's permissions and creation date unless `.usingNewMetadataOnly`. With `.withoutDeletingBackupItem` the original stays
  /// beside it under the backup's name. Throws `CocoaError` with `fileReadNoSuchFile` when one of the two is missing,
  /// `fileWriteFileExists` when something has the backup's name.
  public func replaceItem(
    atPath originalPath: String, withItemAtPath newPath: String, backupItemName: String? = nil,
    options: ItemReplacementOptions = []
  ) throws {
    for path in [newPath, originalPath] { _ = try reading(path) { try existing($0) } }
    try writing(originalPath) { _ in
      let place = try placeToLeave(originalPath)
      try store.replaceItem(
        at: place, with: placeToLeave(newPath),
        backup: options.contains(.withoutDeletingBackupItem) ? backupItemName : nil,
        keepsMetadata: !options.contains(.usingNewMetadataOnly))
    }
  }

  /// Returns where the new item is, which is where the original was.
  @discardableResult
  public func replaceItemAt(
    _ originalItemURL: URL, withItemAt newItemURL: URL, backupItemName: String? = nil,
    options: ItemReplacementOptions = []
  ) throws -> URL? {
    try writing(at: originalItemURL) { path in
      try replaceItem(
        atPath: path, withItemAtPath: self.path(for: newItemURL, .writing), backupItemName: backupItemName,
        options: options)
      let isDirectory = (try? store.attributes(at: place(path)))??.kind == .directory
      guard originalItemURL.hasDirectoryPath != isDirectory else { return originalItemURL }
      return originalItemURL.deletingLastPathComponent().appendingPathComponent(
        originalItemURL.lastPathComponent, isDirectory: isDirectory)
    }
  }

  /// ``replaceItem(atPath:withItemAtPath:backupItemName:options:)`` for URLs. Returns where the new item is.
  @discardableResult
  public func replaceItem(
    at originalItemURL: URL, withItemAt newItemURL: URL, backupItemName: String?,
    options: ItemReplacementOptions = []
  ) throws -> URL? {
    try replaceItemAt(
      originalItemURL, withItemAt: newItemURL, backupItemName: backupItemName, options: options)
  }

  /// ``replaceItem(atPath:withItemAtPath:backupItemName:options:)`` for URLs; `resultingURL` is set to where the new item is.
  public func replaceItem(
    at originalItemURL: URL, withItemAt newItemURL: URL, backupItemName: String?,
    options: ItemReplacementOptions = [], resultingItemURL resultingURL: UnsafeMutablePointer<NSURL?>?
  ) throws {
    let result = try replaceItemAt(
      originalItemURL, withItemAt: newItemURL, backupItemName: backupItemName, options: options)
    resultingURL?.pointee = result.map { $0 as NSURL }
  }

  // MARK: Trash

  /// Moves an item to the trash, `/.Trash`, under its name or with a number behind, in one commit; returns where it is then. Nothing
  /// empties the trash but you. Throws `CocoaError` with `fileNoSuchFile`.
  @discardableResult
  public func trashItem(atPath path: String) throws -> String {
    try writing(path) { _ in try store.move(placeToLeave(path), into: Self.trashPath) }
  }

  /// ``trashItem(atPath:)`` for a URL; `outResultingURL` is set to where the item is then.
  public func trashItem(at url: URL, resultingItemURL outResultingURL: UnsafeMutablePointer<NSURL?>?) throws {
    try writing(at: url) { path in
      let place = try trashItem(atPath: path)
      let isDirectory = (try? store.attributes(at: place))??.kind == .directory
      outResultingURL?.pointee = self.url(forPath: place, isDirectory: isDirectory) as NSURL
    }
  }
}
