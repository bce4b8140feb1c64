import AppKinetics
import Foundation
import Locks
import SecureFiles

/// What other apps see of this one at the broker: its services, running or locked, or a process that stands in for it.
///
/// Steps are made one after another, in a task of their own: a broker that answers late holds up nobody else.
final class BrokerPlace: Sendable {
  private enum Step: Sendable {
    case show(AppServices, ApplicationState)
    case standIn(after: AppServices?)
    case leave(AppServices?)
    case settled(CheckedContinuation<Void, Never>)
  }

  private let steps: AsyncStream<Step>.Continuation
  private let task: Task<Void, Never>

  init(_ url: URL, _ options: AppServices.Options) {
    let (stream, steps) = AsyncStream.makeStream(of: Step.self)
    self.steps = steps
    task = Task {
      var shown: (services: AppServices, state: ApplicationState)?
      var standIn: Task<Void, Never>?
      for await step in stream {
        switch step {
        case .show(let services, let state):
          if let shown, shown.services === services, shown.state == state { continue }
          shown = (services, state)
          try? await services.setState(state)
        case .standIn(let services):
          shown = nil
          services?.beginHolding()
          FailPoint.givingWay.pass()
          await services?.giveWay()
          standIn?.cancel()
          standIn = await Self.standIn(url, options)
          FailPoint.standingIn.pass()
          await services?.stop()
        case .settled(let continuation): continuation.resume()
        case .leave(let services):
          shown = nil
          standIn?.cancel()
          services?.beginHolding()
          // Without a broker an administrator has to forget the app.
          try? await services?.leave()
          FailPoint.leaving.pass()
          await services?.stop()
        }
      }
      standIn?.cancel()
      await standIn?.value
    }
  }

  deinit { steps.finish() }

  /// A process that stands in for the app, and is there when this returns; nil when the app never enrolled.
  private static func standIn(_ url: URL, _ options: AppServices.Options) async -> Task<Void, Never>? {
    guard let locked = try? await BlockingCall.run({ try LockedApp(containerAt: url, options: options) })
    else {
      return nil
    }
    do {
      try await locked.start()
    } catch ServicesError.brokerUnavailable {
      // It goes on trying.
    } catch {
      return nil
    }
    return Task { try? await locked.run() }
  }

  /// The app is authorized: what others see of it.
  func show(_ authorization: Authorization, _ opened: AppRuntime.Opened?) {
    guard let opened else { return }
    steps.yield(.show(opened.services, authorization.withdrawals.isEmpty ? .running : .locked))
  }

  /// The keys are closed. Who waits for the app, and the front, pass from its services to what stands in for it.
  func standIn(after services: AppServices? = nil) { steps.yield(.standIn(after: services)) }

  /// The container was destroyed: the id may be another one's.
  func leave(_ services: AppServices?) { steps.yield(.leave(services)) }

  /// Returns when all steps so far are made. Services that start before that would be replaced by what stands in for their predecessors.
  func settle() async {
    await withCheckedContinuation { continuation in
      if case .terminated = steps.yield(.settled(continuation)) { continuation.resume() }
    }
  }

  func stop() async {
    steps.finish()
    await task.value
  }
}
