extension GDFileManager {
  /// The path that the vendor's C functions have for a path of this class: one from the container's
  /// root. Nil for a relative path. The C functions themselves are not there.
  public class func pathForC(fromManagerPath filePath: String) -> String? {
    let path = shared.container(filePath)
    return path.isEmpty ? nil : path
  }

  /// The path for this class, with the native directory before it, of a path from the container's
  /// root. Nil for a relative path.
  public class func pathForManager(fromCPath filePath: String) -> String? {
    filePath.utf8.first == UInt8(ascii: "/") ? shared.native(filePath) : nil
  }
}
