import ContainerStore
import Foundation
import OpenDynamicsTesting
import Testing

/// When space is given back: whoever closes or compacts a container leaves nobody who could do it later.
struct SpaceGivenBackTests {
  @Test func closingGivesBackWhatTheLastCommitRemoved() throws {
    let io = RecordingIO()
    let container = try Container.create(
      io: io, credential: testCredential(), options: testOptions(.grouped))
    try container.write(testBytes(100_000, seed: 1), to: "/large")
    try container.write([1], to: "/small")
    try container.synchronize()
    let begin = io.log.count
    try container.remove("/large")
    try container.close()
    let punched = io.log[begin...].reduce(UInt64(0)) { count, operation in
      if case .punch(_, _, let more) = operation { count + more } else { count }
    }
    #expect(punched > 90_000)
    let reopened = try Container.open(
      io: RecordingIO(io.image), credential: testCredential(), mode: .readOnly, options: testOptions())
    #expect(try reopened.contents(at: "/small") == [1])
    #expect(try reopened.verify().findings == [])
  }

  @Test func compactingWaitsForWhatAnotherThreadGivesBack() throws {
    let io = HookedIO()
    let container = try Container.create(
      io: io, credential: testCredential(), options: testOptions(.grouped))
    try container.write(testBytes(2_000_000, seed: 1), to: "/large")
    try container.write([1], to: "/small")
    try container.synchronize()
    let (freeing, mayGoOn, compacted) = (
      DispatchSemaphore(value: 0), DispatchSemaphore(value: 0), DispatchSemaphore(value: 0)
    )
    io.setHook { operation, _ in
      guard operation == "punch" else { return }
      io.setHook(nil)
      freeing.signal()
      mayGoOn.wait()
    }
    let complaints = inThreads(2) { thread in
      if thread == 0 {
        try container.remove("/large")
        try container.synchronize()
        return nil
      }
      guard freeing.wait(timeout: .now() + 60) == .success else { return "nothing was given back" }
      Thread.detachNewThread {
        do { try container.compact() } catch { Issue.record(error) }
        compacted.signal()
      }
      let returnedEarly = compacted.wait(timeout: .now() + 0.3) == .success
      mayGoOn.signal()
      if !returnedEarly { compacted.wait() }
      return returnedEarly ? "compacting did not wait" : nil
    }
    #expect(complaints == [])
    try container.close()
  }
}
