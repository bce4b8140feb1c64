import Dispatch
import Foundation
import Locks
import Logging
import Testing

@testable import Commands

/// Who logs does not wait for who reads the log.
struct LogQueueTests {
  @Test func dropsAndCountsWhatNobodyReads() {
    let queue = LogQueue(lineCountMax: 10)
    let (gate, begun) = (DispatchSemaphore(value: 0), DispatchSemaphore(value: 0))
    let written = Guarded<[String]>([])
    queue.append { _ in
      begun.signal()
      gate.wait()
    }
    begun.wait()
    for i in 0..<100 { queue.append { dropped in written.withLock { $0.append("\(i) \(dropped)") } } }
    // Returns although nothing is written.
    queue.flush(.milliseconds(10))
    #expect(written.withLock { $0.isEmpty })
    gate.signal()
    queue.flush(.seconds(60))
    #expect(written.withLock { $0 } == (0..<9).map { "\($0) 0" })
    queue.append { dropped in written.withLock { $0.append("later \(dropped)") } }
    queue.append { dropped in written.withLock { $0.append("last \(dropped)") } }
    queue.flush(.seconds(60))
    #expect(written.withLock { $0 }.suffix(2) == ["later 91", "last 0"])
  }

  /// A pipe that is full, as of a parent that does not read: more is logged than it holds and than may wait.
  @Test func aFullPipeHoldsUpNobody() throws {
    let output = Pipe()
    let queue = LogQueue(lineCountMax: 100)
    let line = Data(String(repeating: "x", count: 4095).utf8) + Data("\n".utf8)
    let descriptor = output.fileHandleForWriting.fileDescriptor
    for _ in 0..<1000 {
      queue.append { _ in line.withUnsafeBytes { _ = write(descriptor, $0.baseAddress, $0.count) } }
    }
    let writing = output.fileHandleForWriting
    // It took as many as the pipe and the queue hold; then somebody reads.
    DispatchQueue.global().async {
      queue.flush(.seconds(60))
      try? writing.close()
    }
    let read = try #require(try output.fileHandleForReading.readToEnd())
    #expect(read.count >= 100 * line.count && read.count < 1000 * line.count)
  }
}
