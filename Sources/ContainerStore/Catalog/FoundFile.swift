/// A file found by its path.
struct FoundFile {
  var id: UInt64
  var inode: Inode
}
