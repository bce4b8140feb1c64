import Dispatch
import EncryptedFile
import Locks
import SodiumPrimitives

/// What a seal needs of one opening of a container: its keys, the gate in front of them, and the fence in front of its files.
///
/// It is known to ``Openings`` before a key is unwrapped, and until nothing of it reaches the files any more.
final class Opening: Sendable {
  /// All keys of this opening, and the gate in front of them.
  let keyPool = KeyPool()
  /// Every change of the files passes it.
  let fence = WriteFence()
  /// Why it was sealed.
  let reason = Guarded<String?>(nil)
  /// Pools of what goes with a seal, and not with closing in good order.
  private let dependents = Guarded<[KeyPool]>([])

  fileprivate struct Place {
    let id: Identifier
    let lockFile: FileIdentity?
    /// Grows from opening to opening; a snapshot has that of what it was made from.
    let rank: Int
    /// It is being closed, or sealed.
    var isEnding = false
    /// A later seal takes what had begun when the opening ended: lower ranks than this.
    var rankAtEnd: Int?
    var isSealed = false
    var isAttached = false
    weak var store: Store?
  }
  /// Nil until the container is known. Changed under the lock of ``Openings``.
  fileprivate let place = Guarded<Place?>(nil)
  /// Left when nothing of it reaches the files any more.
  fileprivate let files = DispatchGroup()
  /// A snapshot is made from another opening.
  private let origin: Opening?

  init(from origin: Opening? = nil) { self.origin = origin }

  fileprivate var rankOfOrigin: Int? { origin?.place.withLock { $0?.rank } }

  /// The store is there, and ends the opening when it goes. Throws `closed` when a seal came before and has not seen it.
  func attach(_ store: Store) throws(ContainerError) {
    place.withLock { place in
      place?.store = store
      place?.isAttached = true
    }
    if keyPool.isShut { throw closed }
  }

  var isAttached: Bool { place.withLock { $0?.isAttached == true } }
  var isSealed: Bool { place.withLock { $0?.isSealed == true } }

  /// The error of a call after the end.
  var closed: ContainerError { ContainerError(.closed, detail: reason.withLock { $0 }) }

  /// A pool of keys that were read from the container.
  func addDependent(_ pool: KeyPool) {
    dependents.withLock { pools in
      pools.removeAll { $0.isShut }
      pools.append(pool)
    }
    if keyPool.isShut { pool.shut() }
  }

  /// Wipes the keys, and lets no change of the files begin any more. The first reason counts, and one that was closed before has none.
  fileprivate func shut(because reason: String?) {
    self.reason.withLock { known in
      if !keyPool.isShut { known = reason }
    }
    // In this order: a change that is refused is one of a closed container.
    keyPool.shut()
    fence.shut()
    for pool in dependents.withLock({ $0 }) { pool.shut() }
  }
}

/// The containers that this process has open, and those whose files it has not let go of yet.
///
/// Snapshots, backups and second openings are openings of their own, with keys of their own: a container that is sealed is sealed in all of them.
final class Openings: Sendable {
  static let shared = Openings()

  /// How long an opening waits for an earlier one of this process that is being closed.
  static let quietTime = DispatchTimeInterval.seconds(10)

  private struct State {
    var openings: [ObjectIdentifier: Opening] = [:]
    var nextRank = 0
  }
  private let state = Guarded(State())
  /// One seal at a time: who comes second returns when the keys are gone, too.
  private let sealing = Guarded(OneAtATime())

  /// The opening has the container's lock, and no key yet.
  func add(_ opening: Opening, id: Identifier, lockFile: FileIdentity?) {
    opening.files.enter()
    state.withLock { state in
      let rank = opening.rankOfOrigin ?? state.nextRank
      state.nextRank += 1
      opening.place.withLock { $0 = Opening.Place(id: id, lockFile: lockFile, rank: rank) }
      state.openings[ObjectIdentifier(opening)] = opening
    }
  }

  func begins(toEnd opening: Opening) { opening.place.withLock { $0?.isEnding = true } }

  /// Nothing of the opening reaches its files any more. Does nothing for one that is not there.
  func remove(_ opening: Opening) {
    let removed = state.withLock { state in
      end(opening, state)
      return state.openings.removeValue(forKey: ObjectIdentifier(opening))
    }
    removed?.files.leave()
  }

  /// The first end counts.
  private func end(_ opening: Opening, _ state: State) {
    opening.place.withLock { place in
      if place != nil, place!.rankAtEnd == nil { place!.rankAtEnd = state.nextRank }
    }
  }

  /// Shuts the opening and all others of the container that had begun when it ended, or have begun by now. Returns their stores.
  func seal(_ opening: Opening, because reason: String?) -> [Store] {
    sealing.withLock { _ in
      state.withLock { end(opening, $0) }
      guard let place = opening.place.withLock({ $0 }) else { return [] }
      var sealed: [Opening] = []
      while true {
        let found = state.withLock { state in
          state.openings.values.filter { other in
            let isMeant = other.place.withLock { other in
              guard other!.id == place.id, other!.rank < place.rankAtEnd!, !other!.isSealed else {
                return false
              }
              (other!.isSealed, other!.isEnding) = (true, true)
              return true
            }
            if isMeant { end(other, state) }
            return isMeant
          }
        }
        // A snapshot that was being made meanwhile has its keys now, or gets none any more.
        if found.isEmpty { break }
        for other in found { other.shut(because: reason) }
        sealed += found
      }
      // One that was closed before may have dependents.
      opening.shut(because: reason)
      return sealed.compactMap { $0.place.withLock { $0?.store } }
    }
  }

  /// Returns when no opening of this process that is being closed holds the file's locks, or after ten seconds.
  func waitForQuiet(of lockFile: FileIdentity) {
    let ending = state.withLock { state in
      state.openings.values.filter { opening in
        opening.place.withLock { $0!.lockFile == lockFile && $0!.isEnding }
      }
    }
    let limit = DispatchTime.now() + Self.quietTime
    for opening in ending { _ = opening.files.wait(timeout: limit) }
  }
}
