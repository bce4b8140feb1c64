import Dispatch
import Synchronization

/// Whether contents of files cross bulk lanes of this process: then they want all processors, and nobody looks for messages in vain.
enum ContentsUnderWay {
  /// Nanoseconds of the system's uptime.
  private static let last = Atomic<UInt64>(0)
  /// From one frame to the next it is less, but for a disk that lets wait.
  private static let pauseMax: UInt64 = 20_000_000

  static func moved() { last.store(DispatchTime.now().uptimeNanoseconds, ordering: .relaxed) }

  static var isTrue: Bool {
    DispatchTime.now().uptimeNanoseconds < last.load(ordering: .relaxed) + pauseMax
  }
}
