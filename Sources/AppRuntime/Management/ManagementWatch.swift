import AppKinetics
import Foundation
import Locks

/// Calls when a management file may have changed: at once where the system reports changes of a directory, and every minute.
final class ManagementWatch: Sendable {
  private let timer = Guarded<(any AppTimer)?>(nil)
  private let observer = Guarded<DirectoryObserver?>(nil)
  private static let pause = Duration.seconds(60)

  init(_ management: ManagementSource, _ clock: any AppClock, _ changed: @escaping @Sendable () -> Void) {
    let directory = URL(fileURLWithPath: management.path).deletingLastPathComponent().path
    let timer = clock.makeTimer { [weak self] in
      changed()
      // The directory may be another one by now.
      self?.observe(directory, changed)
      self?.timer.withLock { $0?.set(to: clock.now + Self.pause) }
    }
    self.timer.withLock { $0 = timer }
    timer.set(to: clock.now + Self.pause)
    observe(directory, changed)
  }

  deinit { stop() }

  func stop() {
    timer.withLock { $0.take()?.cancel() }
    observer.withLock { $0.take()?.stop() }
  }

  private func observe(_ directory: String, _ changed: @escaping @Sendable () -> Void) {
    let next = DirectoryObserver(directory, changed)
    observer.withLock { observer in
      observer?.stop()
      observer = next
    }
  }
}
