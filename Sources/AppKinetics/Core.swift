@preconcurrency import Dispatch
import Foundation
import LocalTransport
import ServiceValues
import ServiceWire
import SodiumPrimitives

/// What changes in an app's runtime: one piece of work at a time.
struct Core: Sendable {
  enum Life: Sendable { case new, running, stopped }

  var life = Life.new
  var wakeUp = WakeUp()
  let timer: any DispatchSourceTimer
  var identity: Identity
  var state = ApplicationState.running
  /// The app took its registration back.
  var isUnregistered = false
  var isInFront = false
  var broker = BrokerPart()
  var peers: [ApplicationID: Peer] = [:]
  var pins: PeerPins
  var keyWatchers: [UInt64: AsyncStream<PeerKey>.Continuation] = [:]
  var offers: [ServiceKey: Offer] = [:]
  var disabled: Set<DisabledPart> = []
  /// The broker's rules.
  var policy = WirePolicy()
  /// Requests that came while the app was locked.
  var locked: [LockedRequest] = []
  /// Deliveries that did.
  var lockedOffers: [LockedOffer] = []
  /// Delivered requests whose services are not offered, and replies that nobody waits for: they stay in the queue of the container.
  var unhandled: [UnhandledMessage] = []
  var unclaimedHandler: UnclaimedReplyHandler?
  var outboxEndHandler: OutboxEndHandler?
  /// Deliveries of earlier processes that are not to go on, and who waits for their ends.
  var takenBack: [Identifier: [@Sendable (SentDeliveryEnd?) -> Void]] = [:]
  var lastChannel: UInt64 = 0
  var frontWatchers: [UInt64: AsyncStream<Bool>.Continuation] = [:]
  var lastWatcher: UInt64 = 0

  init(_ identity: Identity, _ pins: PeerPins, _ timer: any DispatchSourceTimer) {
    self.timer = timer
    self.identity = identity
    self.pins = pins
  }
}

struct ServiceKey: Hashable, Sendable {
  let service: ServiceIdentifier
  let version: ServiceVersion
}

/// A service that the app offers.
struct Offer: Sendable {
  enum Handler: Sendable {
    case function(ServiceHandler)
    case object(any ServiceProvider)
  }

  let definition: ServiceDefinition
  let type: ServiceType
  let validates: Bool
  let handler: Handler
}

/// A request that waits for its turn.
struct ReadyRequest: Sendable {
  let request: IncomingRequest
  let offer: Offer
  /// Files that the app was not told of yet.
  var untold: [ArrivedFile] = []
}

/// What the app itself has switched off: nil stands for all.
struct DisabledPart: Hashable, Sendable {
  let service: ServiceIdentifier
  let version: ServiceVersion?
  let method: String?
}

struct LockedOffer: Sendable {
  let peer: ApplicationID
  let delivery: IncomingDelivery
  let id: Identifier
  let until: UInt64
}

struct LockedRequest: Sendable {
  let peer: ApplicationID
  let request: WireRequest
  let id: Identifier
  let until: UInt64
}

/// Another app, and the channels to it.
///
/// A part of the runtime's state that is an object only so that a change of it does not move all of it out of the table and back.
final class Peer: @unchecked Sendable {
  // Invariant: touched only by work on the state that it belongs to.

  struct Channel: Sendable {
    let lane: ControlLane
    let bulk: BulkLane
    let ticket: Data
    /// The other app's key, as it was introduced.
    let peerKey: Data
    /// Began because this app wanted it.
    let isDialled: Bool
    var isOpen = false
    /// The other side's `Hello` was taken.
    var hasBegun = false
    var lastUsed: UInt64
    /// When something of a delivery came last, or the channel began.
    var lastDelivered: UInt64 = 0
  }

  /// Messages without files.
  var exchange: Exchange
  /// Those with files, and what answers them.
  var deliveries: Deliveries
  var channels: [ChannelNumber: Channel] = [:]
  /// The broker was asked for a channel, and it has not begun yet.
  var isDialling = false
  /// The ticket of the last introduction that this app asked for.
  var introduced: Data?
  /// The other app has to be started or unlocked first.
  var isDialWaiting = false
  /// When a channel is asked for again, for deliveries; the pause after that. Milliseconds.
  var retryAt: UInt64?
  var retryPause: UInt64 = 0
  var sent: [Identifier: SentRequest] = [:]
  var incoming: [Identifier: Incoming] = [:]
  /// In the outbox, by delivery.
  var outgoing: [Identifier: OutgoingDelivery] = [:]
  /// The numbers of the outbox that were for this app are all below.
  var outboxEnd: UInt64 = 0
  /// Numbers below it that were for this app are settled, on the disk: no crash brings one back to be offered again.
  var durableFloor: UInt64 = 0
  /// An acknowledgement waits for the disk, and one more message was settled since.
  var isAcknowledging = false
  var isAcknowledgementDue = false
  /// Also some whose channel broke, so that the app is not told of them twice.
  var arriving: [Identifier: IncomingDelivery] = [:]
  static let interruptedCountMax = 32
  /// What the other app said of its floors, by incarnation, and is not in the ledger yet.
  var acknowledged: [Identifier: UInt64] = [:]
  static let acknowledgedCountMax = 16

  /// Where the app is called for this one: one call after another, and nobody else's wait for them.
  let callbacks: DispatchQueue
  /// Requests that wait for a callback, in order.
  var ready: [ReadyRequest] = []
  /// There is one.
  var isHandling = false

  struct Incoming: Sendable {
    let request: IncomingRequest
    let offer: Offer
    var hasReplied = false
    /// Its reply is on the way to the outbox, or there.
    var isReplyStored = false
  }

  init(exchange: Exchange, deliveries: Deliveries, callbacks: DispatchQueue) {
    self.callbacks = callbacks
    self.exchange = exchange
    self.deliveries = deliveries
  }

  /// A reply to a request that was delivered may come.
  var awaitsDeliveredReplies: Bool { sent.values.contains { $0.isDelivery && $0.status == .delivered } }

  /// Nothing is under way.
  var isIdle: Bool {
    !isHandling && exchange.isIdle && deliveries.isIdle && sent.isEmpty && incoming.isEmpty
      && outgoing.isEmpty
      && !arriving.values.contains { $0.isUnderWay }
  }
}

/// A file in the inbox.
struct ArrivedFile: Sendable, Hashable {
  let path: String
  let byteCount: UInt64
}

/// The connection to the broker.
struct BrokerPart: Sendable {
  enum Phase: Sendable, Equatable {
    case down, dialling, enrolling
    /// The broker waits for an administrator's approval.
    case pending
    case registering, up
  }

  var phase = Phase.down
  /// Counts connections: what comes from an earlier one is passed over.
  var connection: UInt64 = 0
  var lane: BrokerLane?
  var descriptors: DescriptorReceiver?
  var lastQuestion: UInt64 = 0
  var questions: [UInt64: Continuation] = [:]
  /// The apps that unanswered dials are for.
  var dials: [UInt64: String] = [:]
  /// Asked before the connection was there.
  var early: [(WireQuestion.OneOf_Kind, Continuation)] = []
  var watches: [UInt64: Watch] = [:]
  /// Questions that began watches which have ended; the rest of their first list is passed over.
  var endedWatches: Set<UInt64> = []
  var started: [Starter] = []
  /// What the broker took last.
  var registered: WireRegister?
  /// A registration is on its way, and what has changed since is to follow it.
  var isRegistering = false
  var isRegistrationDue = false
  var failures = 0
  var retryAt: UInt64?
  var lastFailure: ServicesError?
  /// Nothing would be better at the next try.
  var hasGivenUp = false
  var introductions: [Data: (WireIntroduction, UInt64)] = [:]
  var handed: [Data: (control: Int32, bulk: Int32, UInt64)] = [:]

  typealias Continuation = @Sendable (inout Core, Result<WireAnswer, ServicesError>) -> Void
  typealias Starter = @Sendable (Result<Void, ServicesError>) -> Void
}

/// A watch of the app's, which outlives connections to the broker.
struct Watch: Sendable {
  let filter: WireFind
  let tell: @Sendable (Result<[WireProvider], ServicesError>) -> Void
  /// Of the question on the present connection.
  var number: UInt64?
  var isComplete = false
  var known: [String: WireProvider] = [:]
}
