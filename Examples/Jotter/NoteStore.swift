import BlackBerryDynamics.SecureStore.File

struct NoteError: LocalizedError {
  let errorDescription: String?
}

/// The notes, a line each, and the files that belong to them, in the secure store.
class NoteStore {
  private let files = GDFileManager.default()
  private let folder =
    NSSearchPathForDirectoriesInDomains(.documentDirectory, .userDomainMask, true)[0] + "/Jotter"
  private var notesPath: String { return folder + "/notes.txt" }
  /// Holds files that came with notes.
  var clippings: String { return folder + "/Clippings" }
  /// Holds copies of files that go to other apps.
  private var outgoing: String { return folder + "/Outgoing" }

  /// Makes what is missing, when the app is authorized.
  func open() throws {
    for path in [clippings, outgoing] {
      try files.createDirectory(atPath: path, withIntermediateDirectories: true, attributes: nil)
    }
    if files.fileExists(atPath: notesPath) { return }
    guard files.createFile(atPath: notesPath, contents: nil, attributes: nil) else {
      throw NoteError(errorDescription: "the notes cannot be made")
    }
  }

  func append(_ text: String) throws {
    guard let handle = GDFileHandle(forWritingAtPath: notesPath) else {
      throw NoteError(errorDescription: "the notes cannot be opened")
    }
    let line = text.components(separatedBy: .newlines).joined(separator: " ") + "\n"
    handle.seekToEndOfFile()
    handle.write(Data(line.utf8))
    handle.synchronizeFile()
    handle.closeFile()
  }

  func notes() throws -> [String] {
    let stream = try GDFileManager.getReadStream(notesPath)
    defer { stream.close() }
    var data = Data()
    var buffer = [UInt8](repeating: 0, count: 65536)
    while stream.hasBytesAvailable {
      let count = stream.read(&buffer, maxLength: 65536)
      if count < 0 { throw stream.streamError ?? NoteError(errorDescription: "the notes cannot be read") }
      data.append(buffer, count: count)
    }
    return String(decoding: data, as: UTF8.self).split(separator: "\n").map(String.init)
  }

  /// Copies a file of the system into the store, and returns the path that it has there.
  func importFile(_ path: String) throws -> String {
    let bytes = [UInt8](try Data(contentsOf: URL(fileURLWithPath: path)))
    let copy = outgoing + "/" + (path as NSString).lastPathComponent
    let stream = try GDFileManager.getWriteStream(copy, appendmode: false)
    let count = stream.write(bytes, maxLength: bytes.count)
    stream.close()
    guard count == bytes.count, stream.streamStatus != .error else {
      throw stream.streamError ?? NoteError(errorDescription: "the file cannot be copied")
    }
    return copy
  }

  /// Moves a file out of the inbox, and returns its name among the clippings.
  func keep(_ path: String) throws -> String {
    var name = (path as NSString).lastPathComponent
    while files.fileExists(atPath: clippings + "/" + name) { name = "copy of " + name }
    try files.moveItem(atPath: path, toPath: clippings + "/" + name)
    return name
  }

  /// Removes the directory of a message in the inbox, which is that of its sender and time.
  func discard(_ attachments: [String]) {
    for path in attachments {
      guard let inbox = path.range(of: "/Inbox/") else { continue }
      let names = path[inbox.upperBound...].components(separatedBy: "/").prefix(2)
      let directory = String(path[..<inbox.upperBound]) + names.joined(separator: "/")
      if files.fileExists(atPath: directory) { try? files.removeItem(atPath: directory) }
    }
  }
}
