import EncryptedFile

/// The runs of a job's files, each file's in order of their starts. All files share one array,
/// because there may be millions.
struct FileRuns: Sendable {
  /// All runs, in order of files and then of starts.
  let extents: [Extent]
  /// The end index of each file's runs in `extents`.
  private let ends: [Int]

  init(_ stored: consuming [StoredRun], fileCount: Int) {
    stored.sort { ($0.owner, $0.extent.start) < ($1.owner, $1.extent.start) }
    extents = stored.map(\.extent)
    var ends = [Int](repeating: 0, count: fileCount)
    for run in stored { ends[run.owner] += 1 }
    var end = 0
    for i in ends.indices {
      end += ends[i]
      ends[i] = end
    }
    self.ends = ends
  }

  /// The runs of the files for which `isLeftOut` is false.
  func extents(without isLeftOut: (Int) -> Bool) -> [Extent] {
    ends.indices.filter { !isLeftOut($0) }.flatMap { self[$0] }
  }

  subscript(file: Int) -> [Extent] { Array(extents[(file == 0 ? 0 : ends[file - 1])..<ends[file]]) }
}
