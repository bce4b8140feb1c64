import Dispatch
import ServiceWire

/// The memory that one other app's offers, their lists of files and callbacks that wait take here: charged to it, or to its sandbox.
final class OfferCharges {
  enum Hold {
    case taken
    /// Others hold too much: there may be room later.
    case later
    /// It alone is more than this app may hold for the other one.
    case never
  }

  private unowned let peer: PeerSession
  private(set) var heldByteCount = 0
  private(set) var waitingCallbackCount = 0
  /// The limit's name.
  static let limit = "bytes of offers and lists of files"
  /// A file of a list takes about so much beside its path.
  static let listedFileByteCount = 128
  /// The same of a file or folder with what its commit takes, which an app in a sandbox is charged from the beginning.
  private static let committedItemByteCount = 1536

  init(_ peer: PeerSession) { self.peer = peer }

  /// A list of files with paths of these lengths takes about so much.
  static func listedByteCount(_ pathByteCounts: some Sequence<Int>) -> Int {
    pathByteCounts.reduce(0) { $0 + $1 + listedFileByteCount }
  }

  /// A file or a folder counts so much.
  var itemByteCount: Int { peer.sandbox == 0 ? Self.listedFileByteCount : Self.committedItemByteCount }

  /// An offer with its list of files.
  func byteCount(of offer: WireOffer) -> Int { offer.keptByteCount + listedByteCount(offer.files) }

  func listedByteCount(_ files: [WireOfferedFile]) -> Int {
    files.reduce(0) { $0 + $1.path.count + itemByteCount }
  }

  /// Holds so many bytes more. A handler may wait for a reply that is awaited, and what it handles is held until it returns: such a reply is
  /// taken when it is not more alone.
  func hold(_ byteCount: Int, of delivery: IncomingDelivery, isAwaited: Bool) -> Hold {
    let isMore = delivery.heldByteCount + byteCount > peer.offerByteCountMaxAlone
    guard byteCount <= peer.offerByteCountLeft || !isMore && isAwaited else {
      return isMore ? .never : .later
    }
    change(delivery, to: delivery.heldByteCount + byteCount)
    return .taken
  }

  func change(_ delivery: IncomingDelivery, to byteCount: Int) {
    let difference = byteCount - delivery.heldByteCount
    delivery.heldByteCount = byteCount
    if byteCount == 0, let promise = delivery.takePromise() { peer.core.disk.end(promise) }
    charge(difference)
  }

  private func charge(_ difference: Int) {
    heldByteCount += difference
    peer.core.heldOfferByteCount += difference
    peer.updateCharge()
  }

  /// Calls the app in its turn. What waits for that is held, however often its delivery ends meanwhile.
  func callBack(holding byteCount: Int, _ body: @escaping @Sendable () -> Void) {
    waitingCallbackCount += 1
    charge(byteCount)
    peer.requests.callbacks.async { [runtime = peer.runtime, application = peer.application] in
      body()
      runtime.perform(with: application) { peer in
        peer.inbox.charges.waitingCallbackCount -= 1
        peer.inbox.charges.charge(-byteCount)
      }
    }
  }
}
