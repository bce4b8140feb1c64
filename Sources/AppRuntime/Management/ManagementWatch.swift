import AppKinetics
@preconcurrency import Dispatch
import Foundation
import Locks

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

/// Calls when a management file may have changed: at once where the system reports changes of a directory, and every minute.
final class ManagementWatch: Sendable {
  private let timer = Guarded<(any AppTimer)?>(nil)
  private let source = Guarded<(any DispatchSourceProtocol)?>(nil)
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
    source.withLock { $0.take()?.cancel() }
  }

  private func observe(_ directory: String, _ changed: @escaping @Sendable () -> Void) {
    let next = Self.source(directory, changed)
    source.withLock { source in
      source?.cancel()
      source = next
    }
  }

  /// Nil where the system does not report changes: once a minute has to do.
  private static func source(
    _ directory: String, _ changed: @escaping @Sendable () -> Void
  ) -> (any DispatchSourceProtocol)? {
    #if os(Linux)
      let descriptor = inotify_init1(Int32(IN_NONBLOCK) | Int32(IN_CLOEXEC))
      guard descriptor >= 0 else { return nil }
      let changes = UInt32(IN_CLOSE_WRITE | IN_MOVED_TO | IN_MOVED_FROM | IN_DELETE)
      guard inotify_add_watch(descriptor, directory, changes) >= 0 else {
        close(descriptor)
        return nil
      }
      let source = DispatchSource.makeReadSource(
        fileDescriptor: descriptor, queue: DispatchQueue(label: "opendynamics.runtime.management"))
      source.setEventHandler {
        var bytes = [UInt8](repeating: 0, count: 4096)
        while Foundation.read(descriptor, &bytes, bytes.count) > 0 {}
        changed()
      }
      source.setCancelHandler { close(descriptor) }
      source.activate()
      return source
    #else
      return nil
    #endif
  }
}
