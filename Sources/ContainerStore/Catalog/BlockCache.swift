import EncryptedFile

/// Opened blocks of tables, up to a number of bytes: those that were not used for the longest time go first, roughly.
final class BlockCache: Sendable {
  struct Place: Hashable {
    var table: Identifier
    var offset: UInt64
  }

  private struct Entry {
    var place: Place
    var block: TableBlock
    /// Used since the hand passed it.
    var isRecent: Bool
  }

  private struct State {
    var entries: [Entry] = []
    var index: [Place: Int] = [:]
    var byteCount = 0
    /// Where the search for something to let go of continues.
    var hand = 0
  }

  private let byteCountMax: Int
  private let state = Guarded(State())

  init(byteCountMax: Int) { self.byteCountMax = byteCountMax }

  /// The block at a place, from the cache or else from `load`. Two threads may load the same block; one of the two is kept.
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

  /// Blocks of a table that no state names any more.
  func forget(table: Identifier) {
    state.withLock { state in
      for i in state.entries.indices.reversed() where state.entries[i].place.table == table {
        remove(i, &state)
      }
    }
  }

  private func insert(_ block: TableBlock, at place: Place, _ state: inout State) {
    guard state.index[place] == nil, block.memoryByteCount <= byteCountMax else { return }
    while state.byteCount + block.memoryByteCount > byteCountMax, !state.entries.isEmpty {
      if state.hand >= state.entries.count { state.hand = 0 }
      if state.entries[state.hand].isRecent {
        state.entries[state.hand].isRecent = false
        state.hand += 1
      } else {
        remove(state.hand, &state)
        // What was the last one stands there now, and is the newest: it gets a round.
        state.hand += 1
      }
    }
    state.index[place] = state.entries.count
    state.entries.append(Entry(place: place, block: block, isRecent: false))
    state.byteCount += block.memoryByteCount
  }

  /// The last entry takes the place of the removed one.
  private func remove(_ i: Int, _ state: inout State) {
    state.byteCount -= state.entries[i].block.memoryByteCount
    state.index[state.entries[i].place] = nil
    let last = state.entries.removeLast()
    guard i < state.entries.count else { return }
    state.entries[i] = last
    state.index[last.place] = i
  }
}
