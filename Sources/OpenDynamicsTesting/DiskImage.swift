import ContainerStore

/// Names and contents of a container's files at one moment.
package struct DiskImage: Sendable, Equatable {
  package var directories: Set<String> = []
  package var names: [String: Int] = [:]
  package var contents: [Int: [UInt8]] = [:]
  private(set) var nextInode = 1

  package init() {}

  /// Only what the names lead to: a file without a name is gone, and so is a name in a directory that is.
  init(directories: Set<String>, names: [String: Int], contents: [Int: [UInt8]], nextInode: Int) {
    self.directories = directories
    self.names = names.filter { directories.contains(Self.parent($0.key)) }
    let linked = Set(self.names.values)
    self.contents = contents.filter { linked.contains($0.key) }
    self.nextInode = nextInode
  }

  func exists(_ path: String) -> Bool { names[path] != nil }

  static func parent(_ path: String) -> String {
    path.lastIndex(of: "/").map { String(path[..<$0]) } ?? ""
  }

  /// Does the operation; the error number when it cannot be.
  mutating func apply(_ operation: RecordingIO.Operation) -> Int32? {
    switch operation {
    case .create(let path):
      guard names[path] == nil else { return existingFile }
      guard directories.contains(Self.parent(path)) else { return missingFile }
      names[path] = nextInode
      contents[nextInode] = []
      nextInode += 1
    case .write(let path, let offset, let bytes):
      guard let inode = names[path] else { return nil }  // removed while open: the bytes go nowhere
      DiskImage.write(bytes, at: Int(offset), to: &contents[inode]!)
    case .truncate(let path, let size):
      guard let inode = names[path] else { return nil }
      DiskImage.resize(&contents[inode]!, to: Int(size))
    case .punch(let path, let offset, let count):
      guard let inode = names[path] else { return nil }
      DiskImage.punch(&contents[inode]!, offset: Int(offset), count: Int(count))
    case .remove(let path):
      guard let inode = names.removeValue(forKey: path) else { return missingFile }
      contents[inode] = nil
    case .rename(let path, let newPath):
      guard let inode = names.removeValue(forKey: path) else { return missingFile }
      if let replaced = names.updateValue(inode, forKey: newPath) { contents[replaced] = nil }
    case .createDirectory(let path):
      guard directories.insert(path).inserted else { return existingFile }
    case .removeDirectory(let path):
      guard directories.remove(path) != nil else { return missingFile }
    case .synchronize, .synchronizeDirectory, .failed: break
    }
    return nil
  }

  static func write(_ bytes: [UInt8], at offset: Int, to contents: inout [UInt8]) {
    if contents.count < offset + bytes.count { resize(&contents, to: offset + bytes.count) }
    contents.withUnsafeMutableBytes { buffer in
      UnsafeMutableRawBufferPointer(rebasing: buffer[offset..<(offset + bytes.count)]).copyBytes(from: bytes)
    }
  }

  static func resize(_ contents: inout [UInt8], to size: Int) {
    if contents.count > size {
      contents.removeSubrange(size...)
    } else {
      contents += [UInt8](repeating: 0, count: size - contents.count)
    }
  }

  static func punch(_ contents: inout [UInt8], offset: Int, count: Int) {
    let end = min(contents.count, offset + count)
    guard offset < end else { return }
    contents.withUnsafeMutableBytes { buffer in
      _ = UnsafeMutableRawBufferPointer(rebasing: buffer[offset..<end])
        .initializeMemory(as: UInt8.self, repeating: 0)
    }
  }
}
