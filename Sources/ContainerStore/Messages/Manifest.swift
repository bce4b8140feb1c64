import EncryptedFile

/// The files of an arriving message that are known so far.
struct Manifest {
  struct File {
    var size: UInt64
    var modified: Int64
    var permissions: UInt16
  }

  let fileCount: Int
  let byteCount: UInt64
  /// Bytes of all segments, at most.
  let storedByteCount: UInt64
  private(set) var files: [File] = []
  /// Paths relative to the message's directory once all files are known; before that, the sender's
  /// paths without the first slash.
  private(set) var places: [[UInt8]] = []
  /// The number of different folders in the paths, once all files are known.
  private(set) var folderCount = 0
  private var sum: UInt64 = 0
  private var pathByteCount = 0
  private let pathsByteCountMax: Int

  init(_ message: ArrivingMessage, pathsByteCountMax: Int = ArrivingMessage.pathsByteCountMax) {
    self.pathsByteCountMax = pathsByteCountMax
    fileCount = Int(message.fileCount)
    byteCount = message.byteCount
    storedByteCount = message.storedByteCount
  }

  var isComplete: Bool { files.count == fileCount }

  /// Adds either all files or none. Throws `ContainerError` and `ArrivalLimit`.
  mutating func add(_ new: [ArrivingFile]) throws {
    guard new.count <= fileCount - files.count else {
      throw ContainerError(.invalidArgument, detail: "more files than the \(fileCount) that were announced")
    }
    let pathByteCount = new.reduce(pathByteCount) { $0 + $1.path.count }
    guard pathByteCount <= pathsByteCountMax else { throw ArrivalLimit.paths }
    var sum = sum
    var paths: [[UInt8]] = []
    paths.reserveCapacity(new.count)
    for file in new {
      paths.append(try Self.relative(file.path))
      let (total, overflows) = sum.addingReportingOverflow(file.size)
      guard !overflows, total <= byteCount else {
        throw ContainerError(
          .invalidArgument, detail: "the files have more than the \(byteCount) bytes that were announced")
      }
      sum = total
    }
    let isComplete = places.count + paths.count == fileCount
    guard !isComplete || sum == byteCount else {
      throw ContainerError(
        .invalidArgument, detail: "the files have \(sum) bytes, and \(byteCount) were announced")
    }
    if isComplete {
      (places, folderCount) = try Self.places(of: places + paths)
    } else {
      places += paths
    }
    files += new.map { File(size: $0.size, modified: $0.modified, permissions: $0.permissions & 0o7777) }
    self.sum = sum
    self.pathByteCount = pathByteCount
  }

  private static func places(of paths: [[UInt8]]) throws -> (files: [[UInt8]], folderCount: Int) {
    let places = InboxPlaces(files: paths)
    guard places.folderCount <= ArrivingMessage.folderCountMax else { throw ArrivalLimit.folders }
    let files = try places.files.map { place in
      guard let place else {
        throw ContainerError(.invalidArgument, detail: "a file that was announced twice")
      }
      return place
    }
    return (files, places.folderCount)
  }

  /// An absolute path of a container without its first slash.
  private static func relative(_ path: [UInt8]) throws -> [UInt8] {
    guard path.first == UInt8(ascii: "/"), let text = String(validating: path, as: UTF8.self) else {
      throw ContainerError(.invalidName, detail: "a path that is not absolute, or not UTF-8")
    }
    let names = path.dropFirst().split(separator: UInt8(ascii: "/"), omittingEmptySubsequences: false)
    guard names.count <= FileName.depthMax, names.allSatisfy({ FileName(bytes: Array($0)) != nil }) else {
      throw ContainerError(.invalidName, path: text)
    }
    return Array(path.dropFirst())
  }
}
