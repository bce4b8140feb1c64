import NIOCore
import NIOPosix
import Testing

@testable import LocalTransport

extension LanePlace {
  @TaskLocal static var tested = LanePlace.sharedEventLoop
}

/// Runs each test once with each place where a lane's work may be done.
struct EveryPlace: TestTrait, SuiteTrait, TestScoping {
  let isRecursive = true
  private let places: [LanePlace] = [
    .sharedEventLoop, .thread(LaneExecutor(), pollTime: .zero),
    .thread(LaneExecutor(), pollTime: LanePlace.pollTime),
  ]

  func provideScope(
    for test: Test, testCase: Test.Case?, performing function: @Sendable () async throws -> Void
  ) async throws {
    guard testCase != nil else { return try await function() }
    for place in places { try await LanePlace.$tested.withValue(place) { try await function() } }
  }
}

extension Trait where Self == EveryPlace {
  static var everyPlace: Self { EveryPlace() }
}
