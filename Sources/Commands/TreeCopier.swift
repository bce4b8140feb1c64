import ContainerStore

/// Copies a file or a folder with everything in it from one end to the other, of which one at least is in a container.
///
/// In one step where one call of the store does it; file by file where files may have to be left out or folders merged, and between
/// containers.
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

  private var control: BulkControl { BulkControl(cancellation: Interruption.shared.cancellation) }

  func copy(_ source: CopyEnd, to target: CopyEnd) throws {
    var items: [CopyItem]
    if keepsLinks, try entryKind(at: source) == .symbolicLink {
      let isThere = try noClobber && entryKind(at: target) != nil
      items = isThere ? [] : [CopyItem(link: "")]
      if !isThere { try copyLink(source, to: target) }
    } else {
      let top = try topItem(of: source)
      if try isOneStep(source, top, target) {
        // What is damaged is reported by the copying, and for a copy inside a container ends it.
        items = try verbose || preserve ? self.items(of: source, top, skipping: { _ in }) : [top]
        try copyInOneStep(source, to: target)
      } else {
        items = try self.items(of: source, top, skipping: leavingOut(source)?.add)
        items = try copyEach(items, from: source, to: target)
      }
    }
    if let unreadable, case .native(let path) = source {
      items.removeAll { unreadable.paths.contains(PathText.below(path, $0.relative)) }
    }
    if let damage, !damage.paths.isEmpty, case .container(let container, let path) = source {
      let top = try container.resolvedPath(path)
      items.removeAll { damage.paths.contains(PathText.below(top, $0.relative)) }
    }
    if preserve { try keepAttributes(of: items, from: source, to: target) }
    if verbose {
      for item in items {
        try Self.report(source.below(item.relative).path, target.below(item.relative).path)
      }
    }
  }

  static func line(_ source: String, _ target: String) -> String {
    PrintableText.of(source) + " -> " + PrintableText.of(target) + "\n"
  }

  static func report(_ source: String, _ target: String) throws {
    try StandardOutput.write(line(source, target))
  }

  // MARK: What there is

  /// The item itself; a link is followed.
  private func topItem(of source: CopyEnd) throws -> CopyItem {
    switch source {
    case .native(let path): try NativeFile.item(path)
    case .container(let container, let path):
      CopyItem("", try container.existing(path, followingLinks: true))
    }
  }

  /// The item and what is below it, folders before their contents. Links below it are not followed.
  private func items(
    of source: CopyEnd, _ top: CopyItem, skipping: ((ContainerError) -> Void)?
  ) throws -> [CopyItem] {
    switch source {
    // What cannot be stored is found by who stores it.
    case .native(let path): return try NativeFile.tree(path, skipping: skipping)
    case .container(let container, let path):
      guard top.kind == .directory else { return [top] }
      let files =
        try skipping.map { try container.readableTree(at: path, skipping: $0) }
        ?? container.list(path, recursively: true)
      return [top] + files.map { CopyItem($0.path, $0.attributes) }
    }
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

  private func isOneStep(_ source: CopyEnd, _ top: CopyItem, _ target: CopyEnd) throws -> Bool {
    if noClobber { return false }
    guard case (.container(let from, _), .container(let into, _)) = (source, target) else { return true }
    guard from === into else { return false }
    return try top.kind != .directory || kind(at: target) != .directory
  }

  private func copyInOneStep(_ source: CopyEnd, to target: CopyEnd) throws {
    try bulk.withProgress(title) { control in
      var control = control
      control.skipping = leavingOut(source)?.add
      try copyAtOnce(source, to: target, control: control)
    }
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

  /// Returns what was copied.
  private func copyEach(_ items: [CopyItem], from source: CopyEnd, to target: CopyEnd) throws -> [CopyItem] {
    try requireApart(source, target, items[0])
    var copied: [CopyItem] = []
    try bulk.withProgressBar(title) { bar in
      var tally = CopyTally(byteCount: items.reduce(0) { $0 + $1.size }, bar: bar)
      for item in items {
        if Interruption.shared.cancellation.isCancelled { throw ContainerError(.cancelled) }
        let (from, into) = (source.below(item.relative), target.below(item.relative))
        // As cp(1) has it: a file goes where a link leads, while a link to a folder is no folder to merge with.
        let isFollowed = item.kind == .file || item.relative.isEmpty
        let existing = try isFollowed ? kind(at: into) ?? entryKind(at: into) : entryKind(at: into)
        if item.kind == .directory {
          if existing == .directory { continue }
          if existing != nil { throw into.error(.fileExists) }
          try makeDirectory(into, permissions: item.permissions)
        } else {
          if noClobber, existing != nil { continue }
          if existing == .directory { throw into.error(.isADirectory) }
          do {
            try copyFile(item, from, to: into, &tally)
          } catch let error as ContainerError where !item.relative.isEmpty && error.code != .cancelled {
            guard let report = leavingOut(source), error.isDamage || report === unreadable else {
              throw error
            }
            report.add(error)
            continue
          }
        }
        copied.append(item)
      }
    }
    return copied
  }

  /// Where what is left out of a folder is told.
  private func leavingOut(_ source: CopyEnd) -> DamageReport? {
    if case .native = source { unreadable } else { damage }
  }

  /// That a folder is not copied into itself.
  private func requireApart(_ source: CopyEnd, _ target: CopyEnd, _ top: CopyItem) throws {
    guard case (.container(let from, let path), .container(let into, let place)) = (source, target),
      from === into, top.kind == .directory
    else { return }
    let outer = Array(PathText.joined(try from.resolvedPath(path), "").utf8)
    if Array((PathText.joined(try into.resolvedPath(place), "")).utf8).starts(with: outer) {
      throw ContainerError(.moveIntoItself, path: place)
    }
  }

  private func makeDirectory(_ end: CopyEnd, permissions: UInt16) throws {
    switch end {
    case .native(let path): try NativeFile.makeDirectory(path, permissions: permissions)
    case .container(let container, let path): try container.createDirectory(path, permissions: permissions)
    }
  }

  private func copyFile(_ item: CopyItem, _ source: CopyEnd, to target: CopyEnd, _ tally: inout CopyTally)
    throws
  {
    if item.kind == .symbolicLink { return try copyLink(source, to: target) }
    guard case (.container(let from, let path), .container(let into, let place)) = (source, target),
      from !== into
    else {
      try copyAtOnce(source, to: target, control: control)
      return tally.add(item.size)
    }
    let file = try from.openFile(path, .read)
    defer { try? file.close() }  // opened for reading: there is nothing to store
    var offset: UInt64 = 0
    try into.write(to: place, permissions: item.permissions) {
      if Interruption.shared.cancellation.isCancelled { throw ContainerError(.cancelled) }
      let piece = try [UInt8](unsafeUninitializedCapacity: 1 << 20) { buffer, count in
        count = try file.read(at: offset, into: UnsafeMutableRawBufferPointer(buffer))
      }
      offset += UInt64(piece.count)
      tally.add(UInt64(piece.count))
      return piece.isEmpty ? nil : piece
    }
    try into.setAttributes(at: place, modified: item.modified)
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
    case .native(let place): try NativeFile.makeLink(place, to: destination)
    case .container(let container, let place):
      try container.createSymbolicLink(place, to: destination, replacing: true)
    }
  }

  // MARK: Attributes

  /// From the innermost out, because what comes into a folder changes its date.
  private func keepAttributes(of items: [CopyItem], from source: CopyEnd, to target: CopyEnd) throws {
    for item in items.reversed() {
      switch (source.below(item.relative), target.below(item.relative)) {
      case (.container(let from, let path), .container(let into, let place)) where item.kind != .symbolicLink:
        let attributes = try from.extendedAttributes(at: path, followingLinks: true)
        if !attributes.isEmpty { try into.setExtendedAttributes(attributes.mapValues { $0 }, at: place) }
        try into.setAttributes(at: place, created: item.created, modified: item.modified)
      case (.native, .container(let into, let place)) where item.kind == .directory:
        try into.setAttributes(at: place, modified: item.modified)
      case (.container, .native(let place)) where item.kind == .directory:
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
    done += count
    bar?.show(ProgressState(bytesDone: done, byteCount: byteCount, seconds: begin.secondsSince))
  }
}
