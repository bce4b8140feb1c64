import ContainerStore

/// Copies a file or a folder with everything in it from one end to the other, of which one at least is in a container.
///
/// In one step where one call of the store does it; file by file between containers, and where folders of one container are merged.
struct TreeCopier {
  /// Of the progress bar.
  var title: String
  var noClobber = false
  var verbose = false
  var preserve = false
  /// What is named is copied as a link where it is one. Links below it always are.
  var keepsLinks = false
  var bulk: BulkOptions
  /// Takes what is damaged below a folder of a container, and is left out. Nil: the first damage ends the copying.
  var damage: DamageReport?
  /// Takes what cannot be read or stored below a native folder, and is left out. Nil: the first of it ends the copying.
  var unreadable: DamageReport?

  func copy(_ source: CopyEnd, to target: CopyEnd) throws {
    let items: [CopyItem]
    if keepsLinks, try entryKind(at: source) == .symbolicLink {
      let isThere = try noClobber && entryKind(at: target) != nil
      items = isThere ? [] : [CopyItem(link: "")]
      if !isThere { try copyLink(source, to: target) }
    } else if case (.container(let from, let path), .container(let into, let place)) = (source, target) {
      let top = CopyItem("", try from.existing(path, followingLinks: true))
      if from === into, !noClobber, try top.kind != .directory || kind(at: target) != .directory {
        items = verbose || preserve ? try self.items(of: from, path, top) : []
        try bulk.withProgress(title) { try copyAtOnce(source, to: target, control: $0) }
      } else {
        items = try copyEach(try self.items(of: from, path, top), from: from, path, to: into, place)
      }
    } else {
      items = try copyInOneStep(source, to: target)
    }
    if preserve { try keepAttributes(of: items, from: source, to: target) }
    if verbose {
      for item in items { try Self.report(source.below(item).path, target.below(item).path) }
    }
  }

  static func line(_ source: String, _ target: String) -> String {
    PrintableText.of(source) + " -> " + PrintableText.of(target) + "\n"
  }

  static func report(_ source: String, _ target: String) throws {
    try StandardOutput.write(line(source, target))
  }

  // MARK: What there is

  /// The item and what is below it, folders before their contents. Links below it are not followed. What is damaged is left out.
  private func items(of container: Container, _ path: String, _ top: CopyItem) throws -> [CopyItem] {
    guard top.kind == .directory else { return [top] }
    let files =
      try damage.map { try container.readableTree(at: path, skipping: $0.add) }
      ?? container.list(path, recursively: true)
    return [top] + files.map { CopyItem($0.path, $0.attributes) }
  }

  /// Nil when there is nothing. Links are followed.
  private func kind(at end: CopyEnd) throws -> FileKind? {
    switch end {
    case .native(let path): try NativeFile.kind(at: path)
    case .container(let container, let path): try container.attributes(at: path, followingLinks: true)?.kind
    }
  }

  /// The same of a link itself.
  private func entryKind(at end: CopyEnd) throws -> FileKind? {
    switch end {
    case .native(let path): try NativeFile.isLink(path) ? .symbolicLink : NativeFile.kind(at: path)
    case .container(let container, let path): try container.attributes(at: path)?.kind
    }
  }

  // MARK: Copying

  /// Returns what was copied.
  private func copyInOneStep(_ source: CopyEnd, to target: CopyEnd) throws -> [CopyItem] {
    var items: [CopyItem] = []
    try bulk.withProgress(title) { control in
      var control = control
      if case .native = source { control.skipping = unreadable?.add } else { control.skipping = damage?.add }
      control.keepsExisting = noClobber
      if verbose || preserve { control.copied = { items.append(CopyItem($0)) } }
      try copyAtOnce(source, to: target, control: control)
    }
    return items.sorted { PathText.precedes($0.relative, $1.relative) }
  }

  private func copyAtOnce(_ source: CopyEnd, to target: CopyEnd, control: BulkControl) throws {
    switch (source, target) {
    case (.native(let path), .container(let container, let place)):
      try container.importItem(at: path, to: place, control: control)
    case (.container(let container, let path), .native(let place)):
      let receipt = try container.exportItem(path, to: place, control: control)
      if receipt.escapedNameCount > 0, !bulk.quiet {
        let count = Quantity.count(receipt.escapedNameCount, "name")
        StandardError.write("dynamics: \(PrintableText.of(place)): \(count) not in UTF-8, written with %XX\n")
      }
      if receipt.refusedAttributes, !bulk.quiet {
        StandardError.write(
          "dynamics: \(PrintableText.of(place)): this file system does not keep all permissions and dates\n")
      }
    case (.container(let container, let path), .container(_, let place)):
      try container.copy(container.resolvedPath(path), to: place, replacing: true, control: control)
    case (.native, .native): preconditionFailure("one end is in a container")
    }
  }

  /// Copies file by file from one container to another, or merges folders of one. Returns what was copied.
  private func copyEach(
    _ items: [CopyItem], from source: Container, _ path: String, to target: Container, _ place: String
  ) throws -> [CopyItem] {
    if source === target, items[0].kind == .directory { try requireApart(source, path, place) }
    var copied: [CopyItem] = []
    try bulk.withProgressBar(title) { bar in
      var tally = CopyTally(byteCount: items.saturatingSum { $0.size }, bar: bar)
      for item in items {
        if Interruption.shared.cancellation.isCancelled { throw ContainerError(.cancelled) }
        let place = PathText.below(place, item.relative)
        // As cp(1) has it: a file goes where a link leads, while a link to a folder is no folder to merge with.
        let isFollowed = item.kind == .file || item.relative.isEmpty
        let end = CopyEnd.container(target, place)
        let existing = try isFollowed ? kind(at: end) ?? entryKind(at: end) : entryKind(at: end)
        if item.kind == .directory {
          if existing == .directory { continue }
          if existing != nil { throw end.error(.fileExists) }
          try target.createDirectory(place, permissions: item.permissions)
        } else {
          if noClobber, existing != nil { continue }
          if existing == .directory { throw end.error(.isADirectory) }
          do {
            try copyFile(item, of: source, PathText.below(path, item.relative), to: target, place, &tally)
          } catch let error as ContainerError where !item.relative.isEmpty && error.isDamage {
            guard let damage else { throw error }
            damage.add(error)
            continue
          }
        }
        copied.append(item)
      }
    }
    return copied
  }

  /// That a folder is not copied into itself.
  private func requireApart(_ container: Container, _ path: String, _ place: String) throws {
    let outer = Array(PathText.joined(try container.resolvedPath(path), "").utf8)
    if Array((PathText.joined(try container.resolvedPath(place), "")).utf8).starts(with: outer) {
      throw ContainerError(.moveIntoItself, path: place)
    }
  }

  private func copyFile(
    _ item: CopyItem, of source: Container, _ path: String, to target: Container, _ place: String,
    _ tally: inout CopyTally
  ) throws {
    if item.kind == .symbolicLink {
      return try copyLink(.container(source, path), to: .container(target, place))
    }
    try source.copy(
      source.resolvedPath(path), into: target, to: place, replacing: true,
      control: BulkControl(
        progress: { [tally] in tally.show(adding: $0.bytesDone) },
        cancellation: Interruption.shared.cancellation))
    tally.add(item.size)
  }

  /// The link itself, in the place of a file or link.
  private func copyLink(_ source: CopyEnd, to target: CopyEnd) throws {
    if case (.container(let from, let path), .container(let into, let place)) = (source, target),
      from === into,
      try from.resolvedPath(path, followingLinks: false) == into.resolvedPath(place, followingLinks: false)
    {
      throw ContainerError(.fileExists, path: place)
    }
    let destination =
      switch source {
      case .native(let path): try NativeFile.destination(ofLink: path)
      case .container(let container, let path): try container.destinationOfSymbolicLink(path)
      }
    switch target {
    case .native(let place):
      if case .container(let container, _) = source { try container.requireOutside(place) }
      try NativeFile.makeLink(place, to: destination)
    case .container(let container, let place):
      try container.createSymbolicLink(place, to: destination, replacing: true)
    }
  }

  // MARK: Attributes

  /// From the innermost out, because what comes into a folder changes its date.
  private func keepAttributes(of items: [CopyItem], from source: CopyEnd, to target: CopyEnd) throws {
    for item in items.reversed() {
      switch (source.below(item), target.below(item)) {
      case (.container(let from, let path), .container(let into, let place)) where item.kind != .symbolicLink:
        do {
          let attributes = try from.extendedAttributes(at: path, followingLinks: true)
          if !attributes.isEmpty { try into.setExtendedAttributes(attributes.mapValues { $0 }, at: place) }
        } catch let error as ContainerError where error.isDamage {
          guard let damage else { throw error }
          damage.add(error)
        }
        try into.setAttributes(at: place, created: item.created, modified: item.modified)
      case (.native, .container(let into, let place)) where item.kind == .directory:
        try into.setAttributes(at: place, modified: item.modified)
      case (.container, .native(let place)) where item.kind == .directory:
        // The export has reported that the file system does not keep dates.
        try NativeFile.setModified(place, item.modified)
      default: break
      }
    }
  }
}

/// How many bytes of several files are through.
private struct CopyTally {
  private let byteCount: UInt64
  private let bar: ProgressBar?
  private let begin = ContinuousClock.now
  private var done: UInt64 = 0

  init(byteCount: UInt64, bar: ProgressBar?) {
    self.byteCount = byteCount
    self.bar = bar
  }

  mutating func add(_ count: UInt64) {
    done.addSaturating(count)
    show(adding: 0)
  }

  /// Shows so many bytes more, of a file that is not through.
  func show(adding count: UInt64) {
    var done = done
    done.addSaturating(count)
    bar?.show(ProgressState(bytesDone: done, byteCount: byteCount, seconds: begin.secondsSince))
  }
}
