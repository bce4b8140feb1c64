import Foundation
import LocalTransport
import ServiceValues
import ServiceWire

/// What changes in an app's runtime: one piece of work at a time.
struct Core: Sendable {
  enum Life: Sendable { case new, running, stopped }

  var life = Life.new
  var identity: Identity
  var state = ApplicationState.running
  /// The app took its registration back.
  var isUnregistered = false
  var isInFront = false
  var broker = BrokerPart()
  var peers: [ApplicationID: Peer] = [:]
  var offers: [ServiceKey: Offer] = [:]
  var disabled: Set<DisabledPart> = []
  /// The broker's rules.
  var policy = WirePolicy()
  /// Requests that wait for the callback queue, in order.
  var ready: [ReadyRequest] = []
  /// Work for them is on the callback queue.
  var isHandling = false
  /// Requests that came while the app was locked.
  var locked: [LockedRequest] = []
  var lastChannel: UInt64 = 0
  var frontWatchers: [UInt64: AsyncStream<Bool>.Continuation] = [:]
  var lastWatcher: UInt64 = 0

  init(_ identity: Identity) { self.identity = identity }
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
  /// Its function begins on the thread that received the request.
  let isBrief: Bool
  let handler: Handler
}

/// A request that waits for its turn.
struct ReadyRequest: Sendable {
  let request: IncomingRequest
  let offer: Offer
  let files: [ArrivedFile]
}

/// What the app itself has switched off: nil stands for all.
struct DisabledPart: Hashable, Sendable {
  let service: ServiceIdentifier
  let version: ServiceVersion?
  let method: String?
}

struct LockedRequest: Sendable {
  let peer: ApplicationID
  let request: WireRequest
  let id: WireID
  let until: UInt64
}

/// Another app, and the channels to it.
struct Peer: Sendable {
  struct Channel: Sendable {
    let lane: ControlLane
    /// The bulk lane's descriptor.
    let bulk: Int32
    let ticket: Data
    /// Began because this app wanted it.
    let isDialled: Bool
    var isOpen = false
    /// The other side's `Hello` was taken.
    var hasBegun = false
    var lastUsed: UInt64
  }

  var exchange: Exchange
  var channels: [ChannelNumber: Channel] = [:]
  /// The other app has to be started or unlocked first.
  var isDialWaiting = false
  var sent: [WireID: SentRequest] = [:]
  /// Those of them that the exchange does not have yet, in order: they wait for files, their own or those of one before.
  var unsubmitted: [SentRequest] = []
  var incoming: [WireID: Incoming] = [:]
  /// Of the other app's runtime, as its last channel said.
  var process: WireID?
  /// Files that came before the message that they belong to.
  var arrivedFiles: [WireID: [ArrivedFile]] = [:]
  /// Requests with files wait until it is known where the other app runs.
  var awaitingChannel: [UInt64: @Sendable (Result<WireID, ServicesError>) -> Void] = [:]
  var lastWaiter: UInt64 = 0

  struct Incoming: Sendable {
    let request: IncomingRequest
    let offer: Offer
    var hasReplied = false
    /// Those of its reply.
    var isCopyingFiles = false
  }

  var hasOpenChannel: Bool { channels.values.contains { $0.isOpen } }
}

/// A file in the inbox.
struct ArrivedFile: Sendable, Hashable {
  let path: String
  let byteCount: UInt64
}

/// The connection to the broker.
struct BrokerPart: Sendable {
  enum Phase: Sendable, Equatable { case down, dialling, enrolling, registering, up }

  var phase = Phase.down
  /// Counts connections: what comes from an earlier one is passed over.
  var connection: UInt64 = 0
  var lane: BrokerLane?
  var descriptors: DescriptorReceiver?
  var lastQuestion: UInt64 = 0
  var questions: [UInt64: Continuation] = [:]
  /// Asked before the connection was there.
  /// The apps that unanswered dials are for.
  var dials: [UInt64: String] = [:]
  var early: [(WireQuestion.OneOf_Kind, Continuation)] = []
  var watches: [UInt64: Watch] = [:]
  /// Questions that began watches which have ended; the rest of their first list is passed over.
  var endedWatches: Set<UInt64> = []
  var renewAfter: UInt64 = 0
  var started: [Starter] = []
  /// What the broker took last.
  var registered: WireRegister?
  var leaf: (certificate: Data, begin: UInt64, end: UInt64)?
  var isRenewing = false
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
