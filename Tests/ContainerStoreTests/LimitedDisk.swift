import Locks
import OpenDynamicsTesting

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

/// A disk with so much room, in pages of 4096 bytes, and so many files.
final class LimitedDisk: Sendable {
  private struct State {
    var sizes: [String: Int]
    var pageCountMax = 0
    var fileCountMax = Int.max

    var pageCount: Int { Self.pages(sizes) }

    static func pages(_ sizes: [String: Int]) -> Int { sizes.values.reduce(0) { $0 + ($1 + 4095) / 4096 } }
  }

  let io: RecordingIO
  private let state: Guarded<State>

  /// A disk that has no more room than what is on it takes, and `spare` bytes.
  init(_ image: DiskImage, spare: Int = 0) {
    io = RecordingIO(image)
    state = Guarded(State(sizes: image.names.mapValues { image.contents[$0]?.count ?? 0 }))
    fill(leaving: spare)
    io.setFault { [state] operation, _ in
      state.withLock { state in
        var wanted = state.sizes
        switch operation {
        case .create(let path): wanted[path] = 0
        case .write(let path, let offset, let bytes):
          wanted[path] = max(wanted[path] ?? 0, Int(offset) + bytes.count)
        case .truncate(let path, let size): wanted[path] = Int(size)
        case .remove(let path): wanted[path] = nil
        case .rename(let path, let new): wanted[new] = wanted.removeValue(forKey: path)
        default: break
        }
        guard wanted.count <= state.fileCountMax || wanted.count <= state.sizes.count else { return ENOSPC }
        let after = State.pages(wanted)
        guard after <= state.pageCountMax || after <= state.pageCount else { return ENOSPC }
        state.sizes = wanted
        return nil
      }
    }
  }

  /// Others take all room but so much.
  func fill(leaving spare: Int = 0) {
    state.withLock { $0.pageCountMax = $0.pageCount + (spare + 4095) / 4096 }
  }

  /// Others take all inodes, and leave the room.
  func takeAllInodes() {
    state.withLock { state in
      state.fileCountMax = state.sizes.count
      state.pageCountMax = .max
    }
  }

  var byteCount: Int { state.withLock { $0.pageCount * 4096 } }
}
