import ContainerStore
import Foundation
import OpenDynamicsTesting
import SodiumPrimitives
import TestSupport
import Testing

@testable import AppRuntime

/// What the runtime keeps beside a container.
struct StateFileTests {
  private func state(_ attempts: Int) -> RuntimeState {
    var state = RuntimeState()
    state.container = Identifier(repeatElement(7, count: 16))
    state.activated = Date(timeIntervalSince1970: 1_700_000_000.25)
    state.instance = UUID(uuidString: "5D0C7F1B-9A3E-4C2D-8F60-71A2B3C4D5E6")
    state.blocks = [LocalBlock(id: "a", notice: Notice(title: "t", text: "x"))]
    state.remoteLock = .management(serial: 9)
    state.attempts = attempts
    state.managed = Data(#"{"version": 1, "serial": 9}"#.utf8)
    return state
  }

  @Test func whatWasWrittenIsRead() throws {
    let directory = TemporaryDirectory()
    let path = directory.path + "/app.runtime"
    do {
      let file = try StateFile(PosixBlockIO(path))
      #expect(try file.read() == nil)
      for attempts in 0..<3 {
        try file.write(state(attempts))
        #expect(try file.read() == state(attempts))
      }
    }
    #expect(try FileManager.default.contentsOfDirectory(atPath: path).sorted() == ["lock", "state"])
    let attributes = try FileManager.default.attributesOfItem(atPath: path + "/state")
    #expect(attributes[.posixPermissions] as? Int == 0o600)
    #expect(try FileManager.default.attributesOfItem(atPath: path)[.posixPermissions] as? Int == 0o700)
    #expect(try StateFile(PosixBlockIO(path)).read() == state(2))
  }

  @Test func isForOneProcess() throws {
    let directory = TemporaryDirectory()
    let path = directory.path + "/app.runtime"
    let file = try StateFile(PosixBlockIO(path))
    let error = #expect(throws: AppRuntimeError.self) { try StateFile(PosixBlockIO(path)) }
    #expect(error?.code == .alreadyRunning)
    // Somebody removes the lock: two processes would have one each.
    try FileManager.default.removeItem(atPath: path + "/lock")
    let other = try StateFile(PosixBlockIO(path))
    #expect(throws: AppRuntimeError.self) { try file.write(state(1)) }
    try other.write(state(2))
    #expect(try other.read() == state(2))
  }

  /// Between looking for the lock file and making it, another process has made it.
  @Test func aLockThatAnotherHasMade() throws {
    let io = RecordingIO()
    try io.createDirectory("")
    _ = try io.open("lock", .createNew)
    io.hideOnce("lock")
    #expect(try StateFile(io).read() == nil)
  }

  @Test(arguments: ["state", "lock", "state.new"]) func doesNotFollowLinks(name: String) throws {
    let directory = TemporaryDirectory()
    let path = directory.path + "/app.runtime"
    try FileManager.default.createDirectory(atPath: path, withIntermediateDirectories: true)
    try Data("mine".utf8).write(to: URL(fileURLWithPath: directory.path + "/mine"))
    try FileManager.default.createSymbolicLink(atPath: path + "/" + name, withDestinationPath: "../mine")
    do {
      let file = try StateFile(PosixBlockIO(path))
      #expect(try file.read() == nil)
      try file.write(state(1))
      #expect(try file.read() == state(1))
    } catch {
      #expect(name == "lock" && error.code == .stateUnusable)
    }
    #expect(try Data(contentsOf: URL(fileURLWithPath: directory.path + "/mine")) == Data("mine".utf8))
  }

  /// Each byte with each bit, and each length.
  @Test func damageIsNotRead() throws {
    let io = RecordingIO()
    try io.createDirectory("")
    let file = try StateFile(io)
    try file.write(state(1))
    let whole = [UInt8](try StateFile.bytes(of: state(1)))
    func read(_ bytes: [UInt8]) throws -> RuntimeState? {
      try io.remove("state")
      try io.open("state", .createNew).write(bytes, at: 0)
      return try file.read()
    }
    #expect(try read(whole) == state(1))
    for i in whole.indices {
      var changed = whole
      changed[i] ^= 1 << (i % 8)
      #expect(try read(changed) == nil, "byte \(i)")
    }
    for count in whole.indices { #expect(try read(Array(whole[..<count])) == nil) }
    #expect(try read(whole + [10]) == nil)
    #expect(try read([]) == nil)
  }

  /// Whatever a power loss leaves: the old state or the new one.
  @Test func aPowerLossLeavesOneOfBothStates() throws {
    let io = RecordingIO()
    try io.createDirectory("")
    let file = try StateFile(io)
    try file.write(state(1))
    let begin = io.log.count
    try file.write(state(2))
    var found: Set<Int> = []
    let losses = CrashPlan.Loss.certain + (0..<20).flatMap { [.some(seed: $0), .tornLast(seed: $0)] }
    for count in begin...io.log.count {
      for loss in losses {
        let image = CrashPlan(operationCount: count, loss: loss).replay(io.log)
        let read = try #require(try StateFile(RecordingIO(image)).read(), "\(loss) after \(count)")
        #expect(read == state(read.attempts))
        found.insert(read.attempts)
        if count == io.log.count { #expect(read.attempts == 2) }
      }
    }
    #expect(found == [1, 2])
  }

  /// Each call fails once: an error, and the old state or the new one.
  @Test(arguments: [28, 5] as [Int32]) func aFailureIsReportedAndLosesNothing(code: Int32) throws {
    let io = RecordingIO()
    try io.createDirectory("")
    let file = try StateFile(io)
    try file.write(state(1))
    var (number, failureCount) = (0, 0)
    while true {
      let failing = number
      io.setCallFault { _, _, number in number == failing ? code : nil }
      let result = Result { try file.write(state(2)) }
      io.setCallFault(nil)
      guard case .failure(let error) = result else { break }
      #expect((error as? AppRuntimeError)?.code == .stateUnusable)
      failureCount += 1
      let read = try #require(try file.read())
      #expect(read == state(read.attempts))
      try file.write(state(1))
      number += 1
    }
    #expect(failureCount >= 6, "\(failureCount) calls")
    #expect(try file.read() == state(2))
  }

  @Test func aClockThatIsSetBackMakesNothingYounger() {
    var state = RuntimeState()
    let begin = Date(timeIntervalSince1970: 1_000)
    #expect(state.advance(to: begin) == begin)
    #expect(state.advance(to: begin - 500) == begin)
    #expect(state.advance(to: begin + 1) == begin + 1)
  }
}
