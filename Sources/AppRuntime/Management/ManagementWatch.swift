import AppKinetics
import Foundation
import Locks

/// Calls when a management file may have changed: at once where the system reports changes of its directory, and every minute; elsewhere,
/// and when the user has all the observers that the system allows (128 on Linux), every second.
final class ManagementWatch: Sendable {
  private let timer = Guarded<(any AppTimer)?>(nil)
  private let observer = Guarded<DirectoryObserver?>(nil)
  private var pause: Duration { observer.withLock { $0 == nil } ? .seconds(1) : .seconds(60) }

  init(_ management: ManagementSource, _ clock: any AppClock, _ changed: @escaping @Sendable () -> Void) {
    let directory = URL(fileURLWithPath: management.path).deletingLastPathComponent().path
    let timer = clock.makeTimer { [weak self] in
      guard let self else { return }
      // The directory may be another one by now.
      observe(directory, changed)
      changed()
      let next = clock.now + pause
      self.timer.withLock { $0?.set(to: next) }
    }
    self.timer.withLock { $0 = timer }
    observe(directory, changed)
    timer.set(to: clock.now + pause)
  }

  deinit { stop() }

  func stop() {
    timer.withLock { $0.take()?.cancel() }
    observer.withLock { $0.take()?.stop() }
  }

  private func observe(_ directory: String, _ changed: @escaping @Sendable () -> Void) {
    if observer.withLock({ $0?.observes(directory) == true }) { return }
    let next = DirectoryObserver(directory, changed)
    observer.withLock { observer in
      observer?.stop()
      observer = next
    }
  }
}
