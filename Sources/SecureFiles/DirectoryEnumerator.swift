import ContainerStore
public import Foundation

extension SecureFileManager {
  /// Goes through what is below a directory, each directory before what is in it, reading one directory at a time. Links are not
  /// followed. Gives `String`s or `URL`s, as asked for.
  public final class DirectoryEnumerator: Sequence, IteratorProtocol {
    enum Form {
      case paths
      case urls(ItemURLs)
    }

    private let manager: SecureFileManager
    private let root: String
    private let form: Form
    private let options: DirectoryEnumerationOptions
    private let errorHandler: ((URL, any Error) -> Bool)?
    private var open: [OpenDirectory] = []
    private var state = State.atStart

    private enum State {
      case atStart
      /// The directory that came last is still to be entered, unless its descendants are skipped.
      case atDirectory
      case between
      case atEnd
    }

    /// A directory whose items are being given.
    private struct OpenDirectory {
      /// Relative to the root, with a slash at the end unless it is empty.
      var prefix: String
      /// As the directory above knows it; nil for the root.
      var listed: ListedFile?
      var items: [ListedFile]
      var next = 0
    }

    private var last: (path: String, item: ListedFile)?
    /// How deep the item that came last stands: 1 directly in the directory, 0 before the first.
    public private(set) var level = 0
    /// Whether the directory that came last comes the second time, after what is in it; with `.includesDirectoriesPostOrder`.
    public private(set) var isEnumeratingDirectoryPostOrder = false

    init(
      _ manager: SecureFileManager, _ root: String, _ form: Form, _ options: DirectoryEnumerationOptions,
      errorHandler: ((URL, any Error) -> Bool)?
    ) {
      self.manager = manager
      self.root = root
      self.form = form
      self.options = options
      self.errorHandler = errorHandler
    }

    /// The next path or URL, nil at the end.
    public func nextObject() -> Any? {
      switch state {
      case .atEnd: return nil
      case .atStart:
        state = .between
        enter("", nil)
      case .atDirectory:
        state = .between
        if let last { enter(last.path + "/", last.item) }
      case .between: break
      }
      while state != .atEnd, let directory = open.last {
        guard directory.next < directory.items.count else {
          open.removeLast()
          if options.contains(.includesDirectoriesPostOrder), let listed = directory.listed {
            return give(String(directory.prefix.dropLast()), listed, isPostOrder: true)
          }
          continue
        }
        open[open.count - 1].next += 1
        let item = directory.items[directory.next]
        if options.contains(.skipsHiddenFiles), item.isHidden { continue }
        if item.attributes.kind == .directory, !options.contains(.skipsSubdirectoryDescendants) {
          state = .atDirectory
        }
        return give(directory.prefix + item.path, item, isPostOrder: false)
      }
      state = .atEnd
      return nil
    }

    public func next() -> Any? { nextObject() }

    /// What is left.
    public var allObjects: [Any] { Array(self) }

    private func give(_ path: String, _ item: ListedFile, isPostOrder: Bool) -> Any {
      last = (path, item)
      level = open.count
      isEnumeratingDirectoryPostOrder = isPostOrder
      switch form {
      case .paths: return path
      case .urls(let urls): return urls.url(of: path, isDirectory: item.attributes.kind == .directory)
      }
    }

    private func enter(_ prefix: String, _ listed: ListedFile?) {
      let place = root.withSlashAtEnd + prefix
      do {
        // A link at the end of the root is not followed unless a slash comes after it.
        let looked = listed == nil ? root : place.withoutTrailingSlashes
        let items = try manager.reading(looked) { looked in
          guard try manager.existing(looked).kind == .directory else { return [ListedFile]() }
          return try manager.store.list(looked)
        }
        open.append(OpenDirectory(prefix: prefix, listed: listed, items: items))
      } catch {
        guard case .urls(let urls) = form else { return }
        let url = prefix.isEmpty ? urls.directory : urls.url(of: String(prefix.dropLast()), isDirectory: true)
        if let errorHandler, !errorHandler(url, error) { state = .atEnd }
      }
    }

    /// Passes over what is in the directory that came last.
    public func skipDescendants() {
      guard state == .atDirectory else { return }
      state = .between
      guard let last, options.contains(.includesDirectoriesPostOrder) else { return }
      // It still comes the second time.
      open.append(OpenDirectory(prefix: last.path + "/", listed: last.item, items: []))
    }

    /// The same under Foundation's older name.
    public func skipDescendents() { skipDescendants() }

    /// Of the item that came last, as ``SecureFileManager/attributesOfItem(atPath:)`` gives them, but as its directory was listed and
    /// without extended attributes.
    public var fileAttributes: [FileAttributeKey: Any]? {
      last.map { manager.dictionary($0.item.attributes) }
    }

    /// Of the directory where the enumerator began.
    public var directoryAttributes: [FileAttributeKey: Any]? { try? manager.attributesOfItem(atPath: root) }
  }
}
