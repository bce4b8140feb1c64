#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

/// Space that is held back, so that on a full disk things can still be removed: a removal has to be written to the journal before it
/// gives anything back.
extension Container {
  private static let reserveName = "reserve"
  private static let reserveByteCounts: ClosedRange<UInt64> = 256 << 10...64 << 20

  /// In proportion to what is stored, and to the catalog: removing every file takes a commit of about a third of it,
  /// in two copies.
  private func reserveByteCount(_ state: borrowing FlushState) -> UInt64 {
    let (live, tables) = core.withLock { core in
      (core.liveByteCount, core.snapshot.tables.reduce(0) { $0 + $1.table.byteCount })
    }
    let catalog = tables + state.chainByteCount + (state.journal?.byteCount ?? 0)
    return min(
      max(live / 256, catalog, Self.reserveByteCounts.lowerBound), Self.reserveByteCounts.upperBound)
  }

  /// Takes the reserve, or takes it back after it was given up. Without room there is none; nothing else depends on it.
  func takeReserve(_ state: inout FlushState) {
    let wanted = reserveByteCount(state)
    do throws(IOFailure) {
      let file: any BlockFile
      do throws(IOFailure) { file = try io.open(Self.reserveName, .readWrite) } catch {
        guard error.errno == missingFile else { throw error }
        file = try io.open(Self.reserveName, .createNew)
      }
      let size = try file.size()
      if size > 2 * wanted { try file.truncate(to: wanted) }
      // What there is stays until there is more.
      if size < wanted / 2 { try file.allocate(wanted) }
      state.hasReserve = true
      core.withLock { $0.diskIsFull = false }
    } catch {
      state.hasReserve = (try? reservedByteCount()) ?? 0 > 0
    }
  }

  /// Does something that takes a little space; when the disk is full, once more without the reserve.
  func usingReserve(_ state: inout FlushState, _ body: (inout FlushState) throws -> Void) throws {
    do {
      try body(&state)
    } catch let failure as IOFailure where failure.errno == ENOSPC && state.hasReserve {
      state.hasReserve = false
      // From now on only what gives space back is taken.
      core.withLock { $0.diskIsFull = true }
      try io.open(Self.reserveName, .readWrite).truncate(to: 0)
      try body(&state)
    }
  }

  /// After something was given back.
  func retakeReserve() {
    guard core.withLock({ $0.diskIsFull }) else { return }
    flushing.withLock { state in
      if !state.isClosed { takeReserve(&state) }
    }
  }

  /// What is held back now.
  func reservedByteCount() throws(IOFailure) -> UInt64 {
    do {
      return try io.open(Self.reserveName, .read).allocatedByteCount()
    } catch {
      guard error.errno == missingFile else { throw error }
      return 0
    }
  }
}
