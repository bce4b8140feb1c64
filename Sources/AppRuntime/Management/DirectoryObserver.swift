import ContainerStore
import Foundation
import Locks

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

/// Calls when a file of a directory was written or replaced (inotify(7)), on a thread of its own.
///
/// No read source of Dispatch: with one, a file that was replaced twice in a few milliseconds was sometimes reported once.
final class DirectoryObserver: Sendable {
  #if os(Linux)
    /// The descriptor and its watch, until the thread has ended.
    private let watch = Guarded<(descriptor: Int32, number: Int32)?>(nil)

    private let identity: FileIdentity?

    /// Whether the directory at a path is the one that is observed.
    func observes(_ directory: String) -> Bool {
      watch.withLock { $0 != nil } && identity != nil && identity == Self.identity(of: directory)
    }

    private static func identity(of directory: String) -> FileIdentity? {
      var status = stat()
      guard stat(directory, &status) == 0 else { return nil }
      return FileIdentity(device: UInt64(status.st_dev), inode: UInt64(status.st_ino))
    }

    /// Nil when the directory cannot be observed.
    init?(_ directory: String, _ changed: @escaping @Sendable () -> Void) {
      let descriptor = inotify_init1(Int32(IN_CLOEXEC))
      guard descriptor >= 0 else { return nil }
      let number = inotify_add_watch(
        descriptor, directory, UInt32(IN_CLOSE_WRITE | IN_MOVED_TO | IN_MOVED_FROM | IN_DELETE))
      guard number >= 0 else {
        close(descriptor)
        return nil
      }
      identity = Self.identity(of: directory)
      watch.withLock { $0 = (descriptor, number) }
      Thread.detachNewThread { [watch] in
        while Self.wait(descriptor) { changed() }
        watch.withLock { $0 = nil }
        close(descriptor)
      }
    }

    deinit { stop() }

    /// Ends the thread: a watch that is removed is an event of its own.
    func stop() {
      watch.withLock { watch in
        if let watch { inotify_rm_watch(watch.descriptor, watch.number) }
      }
    }

    /// Returns when something changed; false when the watch, or the directory, is gone.
    private static func wait(_ descriptor: Int32) -> Bool {
      withUnsafeTemporaryAllocation(
        byteCount: 4096, alignment: MemoryLayout<inotify_event>.alignment
      ) { buffer in
        var count = Foundation.read(descriptor, buffer.baseAddress, buffer.count)
        while count < 0, errno == EINTR {
          count = Foundation.read(descriptor, buffer.baseAddress, buffer.count)
        }
        let headByteCount = MemoryLayout<inotify_event>.size
        var offset = 0
        while count - offset >= headByteCount {
          let event = buffer.loadUnaligned(fromByteOffset: offset, as: inotify_event.self)
          if event.mask & UInt32(IN_IGNORED) != 0 { return false }
          offset += headByteCount + Int(event.len)
        }
        return count > 0
      }
    }
  #else
    /// This system is asked once a minute.
    init?(_ directory: String, _ changed: @escaping @Sendable () -> Void) { return nil }

    func observes(_ directory: String) -> Bool { false }

    func stop() {}
  #endif
}
