import BlackBerryDynamicsTesting
import Locks
import Testing

@testable import BlackBerryDynamics

/// Tests with an app: one after another, because a process has one.
@Suite(.serialized, .timeLimit(.minutes(10))) enum AppTests {}

/// What an app's objects were called with, in order.
final class Told: Sendable {
  private let lines = Guarded<[String]>([])

  var all: [String] { lines.withLock { $0 } }

  /// Without changes of the state.
  var events: [String] { all.filter { $0.hasPrefix("event") } }

  func add(_ line: String) { lines.withLock { $0.append(line) } }

  /// Returns when a line is there so many times, or after a minute, which is a failure.
  func wait(
    for line: String, count: Int = 1, _ location: SourceLocation = #_sourceLocation
  ) async throws {
    for _ in 0..<6000 {
      if all.count(where: { $0 == line }) >= count { return }
      try await Task.sleep(for: .milliseconds(10))
    }
    Issue.record("\(line) is not there, but \(all)", sourceLocation: location)
  }
}

/// An app's handler of events.
final class Handler: NSObject, GDiOSDelegate, Sendable {
  let told = Told()

  func handle(_ anEvent: GDAppEvent) {
    told.add("event \(anEvent.type.rawValue) \(anEvent.code.rawValue)")
  }
}

/// A handler, and what it observes of the state, until the observer is removed.
func withHandler<R>(_ body: (Handler) async throws -> R) async rethrows -> R {
  let handler = Handler()
  let told = handler.told
  let observer = NotificationCenter.default.addObserver(forName: .GDStateChange, object: nil, queue: nil) {
    let name = $0.userInfo?[GDStateChangeKeyProperty] as? String
    let copy = $0.userInfo?[GDStateChangeKeyCopy] as? GDState
    if name == GDKeyIsAuthorized, let copy { told.add("state isAuthorized \(copy.isAuthorized)") }
  }
  defer { NotificationCenter.default.removeObserver(observer) }
  return try await body(handler)
}

/// Apps of a test, with one that is written for the vendor's interface.
func withGDApp(
  clock: any AppClock = SystemClock(), _ change: @Sendable (inout GDConfiguration) -> Void = { _ in },
  _ body: (TestApps, GDTestApp) async throws -> Void
) async throws {
  var options = TestApps.Options()
  options.clock = clock
  try await withTestApps(options) { apps in
    let app = GDTestApp("com.example.gd", in: apps) {
      $0.clock = clock
      change(&$0)
    }
    do { try await body(apps, app) } catch {
      await app.end()
      throw error
    }
    await app.end()
  }
}
