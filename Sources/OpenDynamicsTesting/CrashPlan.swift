/// What a disk may hold after a crash at some place of a log.
///
/// The disk promises little: contents are certain once their file was synced, names (creations, renames, removals) once their
/// directory was. Until then each of them reaches the disk or not by itself and in any order, and of a write each sector or page.
package struct CrashPlan: Sendable, CustomStringConvertible {
  package enum Loss: Sendable, Equatable {
    /// Every operation before the crash reached the disk, as when only the process dies.
    case nothing
    /// Only what was synchronized did.
    case everythingUnsynchronized
    /// Of the names only what was synchronized: new files are missing, removed ones are back. Contents all did.
    case unsynchronizedNames
    /// All names did; of the contents only what was synchronized.
    case unsynchronizedContents
    /// All names and lengths did; contents that were not synchronized are zeros (delayed allocation).
    case zeros
    /// What was synchronized, and of the rest any subset, drawn with the seed.
    case some(seed: UInt64)
    /// Everything, but of the last write any subset of its 512-byte sectors, drawn with the seed.
    case tornLast(seed: UInt64)

    /// Those without a seed.
    package static let certain: [Loss] = [
      .nothing, .everythingUnsynchronized, .unsynchronizedNames, .unsynchronizedContents, .zeros,
    ]
  }

  /// The crash came after so many operations.
  package var operationCount: Int
  package var loss: Loss

  package init(operationCount: Int, loss: Loss) {
    self.operationCount = operationCount
    self.loss = loss
  }

  package var description: String { "crash after operation \(operationCount), \(loss)" }

  /// The disk that is found after the crash, beginning from `start` (all of which is durable).
  package func replay(_ log: [RecordingIO.Operation], from start: DiskImage = DiskImage()) -> DiskImage {
    var disk = LosingDisk(start, loss: loss)
    for change in DiskChanges(log.prefix(operationCount), from: start).list { disk.apply(change) }
    return disk.image
  }

  /// The same for one file, by its name before the crash.
  func contents(of path: String, after log: [RecordingIO.Operation], from start: DiskImage) -> [UInt8]? {
    let changes = DiskChanges(log.prefix(operationCount), from: start)
    var disk = LosingDisk(start, loss: loss)
    guard let file = changes.names[path] else { return nil }
    for change in changes.list where change.file == file { disk.apply(change) }
    return disk.contents[file] ?? []
  }
}
