import Dispatch
import Foundation
import Testing

@testable import SecureFiles

struct BlockingCallConcurrencyTests {
  /// More calls than the cooperative pool has threads, all blocked until a task lets them go: it could not run if they were on the
  /// pool.
  @Test func blockedCallsLeaveTheCooperativePoolFree() async throws {
    let count = 4 * ProcessInfo.processInfo.activeProcessorCount + 4
    let gate = DispatchSemaphore(value: 0)
    let wereLetGo = try await withThrowingTaskGroup(of: Bool.self) { group in
      for _ in 0..<count {
        group.addTask {
          try await BlockingCall.run(progress: nil) { _ in
            return gate.wait(timeout: .now() + 60) == .success
          }
        }
      }
      group.addTask {
        for _ in 0..<count { gate.signal() }
        return true
      }
      return try await group.reduce(into: []) { $0.append($1) }
    }
    #expect(wereLetGo == [Bool](repeating: true, count: count + 1))
  }
}
