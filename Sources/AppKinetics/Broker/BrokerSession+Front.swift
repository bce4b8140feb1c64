import ServiceValues
import ServiceWire

/// The front, which an app passes on within a request, or because a person has launched another app (DESIGN.md, "Decisions of services").
extension BrokerSession {
  /// Another app has asked to be brought to front. The app may follow that as long as it is in front, since
  /// a provider object decides after its call has returned.
  func frontWasRequested(by application: ApplicationID) { frontRequests.insert(application) }

  /// Asks the broker to pass the front on, as a preference says. A refusal changes nothing for the message.
  func passFront(to application: ApplicationID) {
    ask(.bringToFront(.with { $0.appID = application.text })) { _, _ in }
  }

  /// A preference waits for this app to come to front for so many milliseconds.
  static let frontTime: UInt64 = 5_000

  /// The same for a reply that was faster than the front, which its request passes to this app: as soon as the app is there.
  func passFrontOn(to application: ApplicationID) {
    owedFront = (application, runtime.now + Self.frontTime)
  }

  func cameToFront() {
    frontCount += 1
    if let owed = owedFront, runtime.now < owed.until { passFront(to: owed.application) }
    owedFront = nil
    for peer in core.peers.values { peer.requests.handleNext() }
  }

  /// Asks the broker to bring another app to front. Fails with `notAllowed` if no request between the two apps is open.
  func bringToFront(
    _ application: ApplicationID, _ done: @escaping @Sendable (Result<Void, ServicesError>) -> Void
  ) {
    let isWithinRequest =
      core.peers[application]?.hasOpenRequest == true || core.messages.hasAnswerable(from: application)
    guard isWithinRequest || frontRequests.contains(application) else {
      return done(
        .failure(ServicesError(.notAllowed, detail: "no request between this app and \(application) is open"))
      )
    }
    ask(.bringToFront(.with { $0.appID = application.text })) { _, answer in done(answer.map { _ in }) }
  }
}

extension Runtime {
  func bringToFront(_ application: ApplicationID) async throws {
    try await withCheckedThrowingContinuation { waiting in
      perform { core in
        core.broker.bringToFront(application) { waiting.resume(with: $0.mapError { $0 as any Error }) }
      }
    }
  }
}
