import Foundation
import Testing

@testable import AppKinetics

/// Foundation's progress shows the transfer of a message.
struct TransferMeterTests {
  /// Seven threads count while one asks for the progress.
  @Test func showsTheLastReport() {
    for _ in 0..<2_000 {
      let meter = TransferMeter()
      meter.begin(byteCount: 7, fileCount: 1)
      DispatchQueue.concurrentPerform(iterations: 8) { index in
        if index == 1 {
          _ = meter.progress(hasFiles: true, cancel: {})
        } else {
          meter.advance { $0.bytesDone += 1 }
        }
      }
      let progress = meter.progress(hasFiles: true, cancel: {})
      #expect([progress.completedUnitCount, progress.totalUnitCount] == [7, 7])
    }
  }

  @Test(arguments: [0, 1] as [UInt64])
  func finishesAMessageWithoutBytes(fileCount: UInt64) {
    let meter = TransferMeter()
    let progress = meter.progress(hasFiles: true, cancel: {})
    meter.begin(byteCount: 0, fileCount: fileCount)
    #expect(progress.isIndeterminate && !progress.isFinished)
    meter.finish()
    #expect(progress.isFinished && !progress.isIndeterminate && progress.fractionCompleted == 1)
    #expect(meter.transfer.bytesDone == 0 && meter.transfer.filesSent == fileCount)
  }

  /// Another thread still says what it had counted.
  @Test func staysFinished() {
    let meter = TransferMeter()
    let progress = meter.progress(hasFiles: true, cancel: {})
    meter.begin(byteCount: 7, fileCount: 1)
    meter.finish()
    meter.advance { $0.bytesDone = 6 }
    #expect(progress.isFinished && meter.transfer.bytesDone == 7)
  }
}
