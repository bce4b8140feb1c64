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
    let (from, to) = (item.path, destination.path)
    if let fromURL = item.url, let toURL = destination.url {
      return switch action {
      case .copying: delegate.fileManager(manager, shouldCopyItemAt: fromURL, to: toURL)
      case .linking: delegate.fileManager(manager, shouldLinkItemAt: fromURL, to: toURL)
      case .moving: delegate.fileManager(manager, shouldMoveItemAt: fromURL, to: toURL)
      case .removing: delegate.fileManager(manager, shouldRemoveItemAt: fromURL)
      }
    }
    return switch action {
    case .copying: delegate.fileManager(manager, shouldCopyItemAtPath: from, toPath: to)
    case .linking: delegate.fileManager(manager, shouldLinkItemAtPath: from, toPath: to)
    case .moving: delegate.fileManager(manager, shouldMoveItemAtPath: from, toPath: to)
    case .removing: delegate.fileManager(manager, shouldRemoveItemAtPath: from)
    }
  }

  private func proceeds(after error: any Error, _ item: NamedItem, _ destination: NamedItem) -> Bool {
    guard let delegate else { return false }
    let (from, to) = (item.path, destination.path)
    if let fromURL = item.url, let toURL = destination.url {
      return switch action {
      case .copying:
        delegate.fileManager(manager, shouldProceedAfterError: error, copyingItemAt: fromURL, to: toURL)
      case .linking:
        delegate.fileManager(manager, shouldProceedAfterError: error, linkingItemAt: fromURL, to: toURL)
      case .moving:
        delegate.fileManager(manager, shouldProceedAfterError: error, movingItemAt: fromURL, to: toURL)
      case .removing: delegate.fileManager(manager, shouldProceedAfterError: error, removingItemAt: fromURL)
      }
    }
    return switch action {
    case .copying:
      delegate.fileManager(manager, shouldProceedAfterError: error, copyingItemAtPath: from, toPath: to)
    case .linking:
      delegate.fileManager(manager, shouldProceedAfterError: error, linkingItemAtPath: from, toPath: to)
    case .moving:
      delegate.fileManager(manager, shouldProceedAfterError: error, movingItemAtPath: from, toPath: to)
    case .removing: delegate.fileManager(manager, shouldProceedAfterError: error, removingItemAtPath: from)
    }
  }
}
