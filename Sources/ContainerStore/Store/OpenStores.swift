import Dispatch
import Locks
import SodiumPrimitives

/// The containers that this process has open, and those whose files it has not let go of yet.
///
/// Snapshots, backups and second openings are stores of their own, with keys of their own: a container that is sealed is sealed in all of them.
final class OpenStores: Sendable {
  static let shared = OpenStores()

  /// How long an opening waits for an earlier one of this process that is being closed.
  static let quietTime = DispatchTimeInterval.seconds(10)

  private struct Entry {
    weak var store: Store?
    let id: Identifier
    let lockFile: FileIdentity?
    /// It is being closed, or sealed.
    var isEnding = false
    /// Left when nothing of the store reaches its files any more.
    let open = DispatchGroup()
  }
  private let entries = Guarded<[ObjectIdentifier: Entry]>([:])

  func add(_ store: Store) {
    let entry = Entry(store: store, id: store.id, lockFile: try? store.lockFile.identity())
    entry.open.enter()
    entries.withLock { $0[ObjectIdentifier(store)] = entry }
  }

  func begins(toEnd store: Store) { entries.withLock { $0[ObjectIdentifier(store)]?.isEnding = true } }

  /// Nothing of the store reaches its files any more.
  func remove(_ store: Store) {
    entries.withLock { $0.removeValue(forKey: ObjectIdentifier(store)) }?.open.leave()
  }

  /// The references are the caller's: the last one of a store must not go under the lock.
  func stores(of id: Identifier) -> [Store] {
    entries.withLock { $0.values.filter { $0.id == id }.compactMap(\.store) }
  }

  /// Returns when no store of this process that is being closed holds the file's locks, or after ten seconds.
  func waitForQuiet(of lockFile: FileIdentity) {
    let ending = entries.withLock { entries in
      entries.values.filter { $0.lockFile == lockFile && $0.isEnding }.map(\.open)
    }
    let limit = DispatchTime.now() + Self.quietTime
    for group in ending { _ = group.wait(timeout: limit) }
  }
}
