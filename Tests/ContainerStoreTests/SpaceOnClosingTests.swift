import ContainerStore
import OpenDynamicsTesting
import Testing

/// A program that removes a file and ends leaves nobody who could give the space back later.
struct SpaceOnClosingTests {
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
}
