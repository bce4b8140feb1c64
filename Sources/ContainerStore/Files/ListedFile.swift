/// One file of a listing.
public struct ListedFile: Sendable {
  /// Path relative to the listed directory, with slashes between the names.
  public var path: String
  public var attributes: FileAttributes
}

extension ListedFile {
  init(names: [FileName], file: FoundFile) {
    path = names.map(\.description).joined(separator: "/")
    attributes = FileAttributes(file)
  }
}
