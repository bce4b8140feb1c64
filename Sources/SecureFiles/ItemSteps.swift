import ContainerStore
import Foundation

/// What is done to items one after another, with a delegate asked about each.
enum ItemAction: String {
  case copying = "Copy"
  case linking = "Link"
  case moving = "Move"
  case removing = "Remove"
}

/// An item as the call named it: by its path, and by its URL when that was given.
struct NamedItem {
  var path: String
  var url: URL?

  func child(_ name: String, isDirectory: Bool) -> NamedItem {
    NamedItem(
      path: path.withSlashAtEnd + name,
      url: url?.appendingPathComponent(name, isDirectory: isDirectory))
  }
}

/// Asks the delegate about each item and each error. An item that is removed is its own destination.
struct ItemSteps {
  let manager: SecureFileManager
  let delegate: (any SecureFileManagerDelegate)?
  let action: ItemAction

  /// Runs `body` when it may; false when it may not, or failed and that is fine.
  func run(_ item: NamedItem, _ destination: NamedItem, _ body: () throws -> Void) throws -> Bool {
    guard mayBegin(item, destination) else { return false }
    return try finish(item, destination, body)
  }

  /// The same for what the delegate was asked about before.
  func finish(_ item: NamedItem, _ destination: NamedItem, _ body: () throws -> Void) throws -> Bool {
    do {
      try body()
      return true
    } catch {
      let error = translated(error, item, destination, .writing)
      guard proceeds(after: error, item, destination) else { throw error }
      return false
    }
  }

  func translated(_ error: any Error, _ item: NamedItem, _ destination: NamedItem, _ access: FileAccess)
    -> any Error
  {
    var userInfo: [String: Any] = [userStringVariantKey: [action.rawValue]]
    if action != .removing {
      userInfo[sourcePathKey] = item.path
      userInfo[destinationPathKey] = destination.path
    }
    return cocoaError(
      error, path: item.path, access, url: item.url ?? manager.url(forPath: item.path, isDirectory: false),
      userInfo: userInfo)
  }

  func mayBegin(_ item: NamedItem, _ destination: NamedItem) -> Bool {
    guard let delegate else { return true }
    return asking(item, destination) { from, to in
      switch action {
      case .copying: delegate.fileManager(manager, shouldCopyItemAt: from, to: to)
      case .linking: delegate.fileManager(manager, shouldLinkItemAt: from, to: to)
      case .moving: delegate.fileManager(manager, shouldMoveItemAt: from, to: to)
      case .removing: delegate.fileManager(manager, shouldRemoveItemAt: from)
      }
    }
  }

  /// The forms with URLs are asked, as Foundation does; those with paths, which they ask unless they are implemented, get the paths as
  /// the call had them.
  private func asking(_ item: NamedItem, _ destination: NamedItem, _ body: (URL, URL) -> Bool) -> Bool {
    if let from = item.url, let to = destination.url {
      return PathsAsGiven.$current.withValue(nil) { body(from, to) }
    }
    let (from, to) = (
      manager.url(forPath: item.path, isDirectory: false),
      manager.url(forPath: destination.path, isDirectory: false)
    )
    let given = PathsAsGiven(from: item.path, to: destination.path)
    return PathsAsGiven.$current.withValue(given) { body(from, to) }
  }

  private func proceeds(after error: any Error, _ item: NamedItem, _ destination: NamedItem) -> Bool {
    guard let delegate else { return false }
    return asking(item, destination) { from, to in
      switch action {
      case .copying:
        delegate.fileManager(manager, shouldProceedAfterError: error, copyingItemAt: from, to: to)
      case .linking:
        delegate.fileManager(manager, shouldProceedAfterError: error, linkingItemAt: from, to: to)
      case .moving:
        delegate.fileManager(manager, shouldProceedAfterError: error, movingItemAt: from, to: to)
      case .removing: delegate.fileManager(manager, shouldProceedAfterError: error, removingItemAt: from)
      }
    }
  }
}

/// The paths of the item that a delegate is being asked about by a call with paths.
struct PathsAsGiven: Sendable {
  var from: String
  var to: String

  @TaskLocal static var current: PathsAsGiven?
}
