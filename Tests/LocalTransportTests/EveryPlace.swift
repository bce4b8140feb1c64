import NIOCore
import NIOPosix
import ServiceWire
import Testing

@testable import LocalTransport

extension LanePlace {
  @TaskLocal static var tested = LanePlace.sharedEventLoop
}

extension BulkCipher {
  @TaskLocal static var tested = BulkCipher.secretstream
}

/// Runs each test once with each of some values.
struct Every<Value: Sendable>: TestTrait, SuiteTrait, TestScoping {
  let local: TaskLocal<Value>
  let values: [Value]
  let isRecursive = true

  func provideScope(
    for test: Test, testCase: Test.Case?, performing function: @Sendable () async throws -> Void
  ) async throws {
    guard testCase != nil else { return try await function() }
    for value in values { try await local.withValue(value) { try await function() } }
  }
}

extension Trait where Self == Every<LanePlace> {
  /// Where a lane's work may be done.
  static var everyPlace: Self {
    Every(
      local: LanePlace.$tested,
      values: [
        .sharedEventLoop, .thread(LaneExecutor(), pollTime: .zero),
        .thread(LaneExecutor(), pollTime: LanePlace.pollTime),
      ])
  }
}

extension Trait where Self == Every<BulkCipher> {
  /// What streams may be sealed with.
  static var everyCipher: Self { Every(local: BulkCipher.$tested, values: BulkCipher.allCases) }
}
