import Testing

@testable import UnixSockets

struct DetachedThreadTests {
  @Test(arguments: ["short", "a name that is longer than the system takes", "", "königlich-kühn"])
  func runsWhatItIsGiven(name: String) async throws {
    let stream = AsyncStream<Int>.makeStream()
    try DetachedThread.start(name) {
      stream.continuation.yield(1)
      stream.continuation.finish()
    }
    var values: [Int] = []
    for await value in stream.stream { values.append(value) }
    #expect(values == [1])
  }

  /// A stack that no address space has.
  @Test func saysWhenThereIsNoThread() {
    do {
      try DetachedThread.start("none", stackByteCount: 1 << 60) { Issue.record("it ran") }
      Issue.record("there was one")
    } catch SocketError.callFailed(let operation, nil, let number) {
      #expect(operation == "pthread_create" && number != 0)
    } catch {
      Issue.record(error)
    }
  }
}
