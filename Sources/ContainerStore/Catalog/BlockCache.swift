import EncryptedFile
import Locks
import SodiumPrimitives

/// A cache of opened table blocks, up to a number of bytes. It evicts approximately the least
/// recently used block (clock algorithm).
final class BlockCache: Sendable {
  struct Place: Hashable {
    var table: Identifier
    var offset: UInt64
  }

  private struct Entry {
    var place: Place
    var block: TableBlock
    /// Whether the block was used since the clock hand passed it.
    var isRecent: Bool
  }

  private struct State {
    var entries: [Entry] = []
    var index: [Place: Int] = [:]
    var byteCount = 0
    var isClosed = false
    /// The clock hand: the index at which the search for a block to evict continues.
    var hand = 0
  }

  private let byteCountMax: Int
  private let state = Guarded(State())

  init(byteCountMax: Int) { self.byteCountMax = byteCountMax }

  /// The block at a location, from the cache or else from `load`. Two threads may load the same
  /// block; one of the two is kept.
  func block(at place: Place, load: () throws -> TableBlock) throws -> TableBlock {
    let cached = state.withLock { state -> TableBlock? in
      guard let i = state.index[place] else { return nil }
      state.entries[i].isRecent = true
      return state.entries[i].block
    }
    if let cached { return cached }
    let block = try load()
    state.withLock { insert(block, at: place, &$0) }
    return block
  }

  /// Removes the blocks of a table that no state names any more.
  func forget(table: Identifier) {
    state.withLock { state in
      for i in state.entries.indices.reversed() where state.entries[i].place.table == table {
        remove(i, &state)
      }
    }
  }

  /// Removes all blocks. From now on it keeps none.
  func close() {
    let blocks = state.withLock { state in
      defer { state = State(isClosed: true) }
      return state.entries
    }
    withExtendedLifetime(blocks) {}
  }

  private func insert(_ block: TableBlock, at place: Place, _ state: inout State) {
    guard !state.isClosed, state.index[place] == nil, block.memoryByteCount <= byteCountMax else { return }
    while state.byteCount + block.memoryByteCount > byteCountMax, !state.entries.isEmpty {
      if state.hand >= state.entries.count { state.hand = 0 }
      if state.entries[state.hand].isRecent {
        state.entries[state.hand].isRecent = false
        state.hand += 1
      } else {
        remove(state.hand, &state)
        // The last entry is at this index now. It is the newest, so the hand passes it once.
        state.hand += 1
      }
    }
    state.index[place] = state.entries.count
    state.entries.append(Entry(place: place, block: block, isRecent: false))
    state.byteCount += block.memoryByteCount
  }

  /// Removes an entry, and moves the last entry to its index.
  private func remove(_ i: Int, _ state: inout State) {
    state.byteCount -= state.entries[i].block.memoryByteCount
    state.index[state.entries[i].place] = nil
    let last = state.entries.removeLast()
    guard i < state.entries.count else { return }
    state.entries[i] = last
    state.index[last.place] = i
  }
}
