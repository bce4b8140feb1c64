/// A log's operations as changes of numbered files and of names, each known to be durable or not.
struct DiskChanges {
  struct Change {
    enum Kind {
      case write(offset: Int, bytes: [UInt8])
      case truncate(Int)
      case punch(offset: Int, count: Int)
      case link(String)
      case unlink(String)
      case rename(String, to: String)
      case createDirectory(String)
      case removeDirectory(String)
    }

    var kind: Kind
    /// The file whose contents or name it changes; 0 for directories.
    var file = 0
    var isDurable = false
    var isLast = false
  }

  private(set) var list: [Change] = []
  private(set) var names: [String: Int]
  private var nextFile: Int
  /// Places in the list that the next sync of a file, or of a directory, makes durable.
  private var contentsUnderWay: [Int: [Int]] = [:]
  private var namesUnderWay: [String: [Int]] = [:]

  init(_ operations: ArraySlice<RecordingIO.Operation>, from start: DiskImage) {
    names = start.names
    nextFile = start.nextInode
    for operation in operations { add(operation) }
    // Torn is the last operation alone, if it is a write.
    if case .write = operations.last, !list.isEmpty { list[list.count - 1].isLast = true }
  }

  private mutating func add(_ operation: RecordingIO.Operation) {
    switch operation {
    case .create(let path):
      names[path] = nextFile
      addName(.link(path), path, file: nextFile)
      nextFile += 1
    case .write(let path, let offset, let bytes):
      addContents(.write(offset: Int(offset), bytes: bytes), path)
    case .truncate(let path, let size): addContents(.truncate(Int(size)), path)
    case .punch(let path, let offset, let count):
      addContents(.punch(offset: Int(offset), count: Int(count)), path)
    case .remove(let path):
      if let file = names.removeValue(forKey: path) { addName(.unlink(path), path, file: file) }
    case .rename(let path, let newPath):
      guard let file = names.removeValue(forKey: path) else { return }
      names[newPath] = file
      addName(.rename(path, to: newPath), newPath, file: file)
    case .createDirectory(let path): addName(.createDirectory(path), path)
    case .removeDirectory(let path): addName(.removeDirectory(path), path)
    case .synchronize(let path):
      guard let file = names[path] else { return }
      for i in contentsUnderWay.removeValue(forKey: file) ?? [] { list[i].isDurable = true }
    case .synchronizeDirectory(let path):
      for i in namesUnderWay.removeValue(forKey: path) ?? [] { list[i].isDurable = true }
    case .failed(.synchronize(let path)):
      // No later sync tries again.
      if let file = names[path] { contentsUnderWay[file] = nil }
    case .failed(.synchronizeDirectory(let path)): namesUnderWay[path] = nil
    case .failed: break
    }
  }

  private mutating func addContents(_ kind: Change.Kind, _ path: String) {
    guard let file = names[path] else { return }
    contentsUnderWay[file, default: []].append(list.count)
    list.append(Change(kind: kind, file: file))
  }

  private mutating func addName(_ kind: Change.Kind, _ path: String, file: Int = 0) {
    namesUnderWay[DiskImage.parent(path), default: []].append(list.count)
    list.append(Change(kind: kind, file: file))
  }
}
