import AppKinetics

/// Something that happened, for people or programs.
struct AppEvent: Encodable, Sendable {
  var event: String
  var app: String?
  var service: String?
  var method: String?
  var id: String?
  var path: String?
  /// What an administrator types.
  var command: String?
  /// An earlier process may have had it.
  var isRedelivered: Bool?
  /// It may have come before, from a container that was put back.
  var mayBeRepeated: Bool?
  /// How many messages are missing in a container that was put back, or how many events were not printed.
  var missingCount: UInt64?
  /// Of a message that is on its way.
  var fileCount: UInt64?
  var byteCount: UInt64?
  /// The name of an error.
  var reason: String?
  /// For a person, about the reason.
  var detail: String?

  init(
    _ event: String, app: String? = nil, service: String? = nil, method: String? = nil, id: String? = nil,
    path: String? = nil, command: String? = nil, isRedelivered: Bool? = nil, mayBeRepeated: Bool? = nil,
    missingCount: UInt64? = nil, fileCount: UInt64? = nil, byteCount: UInt64? = nil, reason: String? = nil,
    detail: String? = nil
  ) {
    self.event = event
    self.app = app
    self.service = service
    self.method = method
    self.id = id
    self.path = path
    self.command = command
    self.isRedelivered = isRedelivered
    self.mayBeRepeated = mayBeRepeated
    self.missingCount = missingCount
    self.fileCount = fileCount
    self.byteCount = byteCount
    self.reason = reason
    self.detail = detail
  }

  var text: String {
    let size = byteCount.map { Quantity.bytes($0) }
    let parts = [event, app, service, method, path, size, reason, detail, command].compactMap {
      $0.map(PrintableText.of)
    }
    return parts.joined(separator: " ") + "\n"
  }
}

/// Prints events, one at a time. No handler waits for a reader that does not read: what it leaves for too long is dropped, and counted.
struct EventReport: Sendable {
  let asJSON: Bool
  let bar: ArrivalBar
  private let queue = LogQueue(lineCountMax: 16_384)

  init(asJSON: Bool, bar: ArrivalBar) {
    self.asJSON = asJSON
    self.bar = bar
  }

  /// Writes one event. The app goes on when nobody reads the output.
  func write(_ event: AppEvent) {
    queue.append(waitingAtMost: Self.waitingTime) { [self] droppedCount in
      bar.clear()
      if droppedCount > 0 { put(AppEvent("events were dropped", missingCount: UInt64(droppedCount))) }
      put(event)
    }
  }

  /// A reader that takes a line in this time is waited for.
  private static let waitingTime = Duration.seconds(2)

  private func put(_ event: AppEvent) {
    guard asJSON else { return (try? StandardOutput.write(event.text)) ?? () }
    if let line = try? JSONText.of(event) { try? StandardOutput.write(line) }
  }

  /// Returns when everything was written, or nobody reads it.
  func flush() { queue.flush() }

  /// Writes which apps want something of this one, each once for as long as it is among them.
  func follow(_ waitingPeers: AsyncStream<Set<ApplicationID>>) async {
    var told: Set<ApplicationID> = []
    for await peers in waitingPeers {
      for peer in peers.subtracting(told).sorted(by: { $0.text < $1.text }) {
        write(AppEvent("waiting for this app", app: peer.text))
      }
      told = peers
    }
  }
}
