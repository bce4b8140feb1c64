/// A message's new directory in the inbox, while a transaction fills it.
struct InboxDirectory {
  let path: String
  private let transaction: Transaction
  private let names: [FileName]
  /// Ids of the directories that are there, by their paths below this one.
  private var directories: [ArraySlice<UInt8>: UInt64]

  /// Makes `/Inbox/<sender>/<time>`. Throws `fileExists` if something is there.
  init(of sender: FileName, _ time: FileName, in transaction: Transaction) throws {
    names = InboxName.directory(of: sender) + [time]
    path = StorePath.text(names)
    self.transaction = transaction
    let parent = try transaction.directory(names.dropLast(), path: path)
    guard try transaction.entry(parent, time) == nil else { throw ContainerError(.fileExists, path: path) }
    directories = [[]: try transaction.directory(names, path: path)]
  }

  /// The directory at a place of ``InboxPlaces``, which is made if there is none.
  @discardableResult
  mutating func directory(at place: ArraySlice<UInt8>) throws -> UInt64 {
    if let known = directories[place] { return known }
    let id = try transaction.directory(names + InboxPlaces.names(Array(place)), path: path)
    directories[place] = id
    return id
  }

  /// Puts a file at a place of ``InboxPlaces``, which no other file has.
  mutating func add(_ file: UInt64, at place: [UInt8]) throws {
    let parentPlace = InboxPlaces.parent(place[...])
    let parent = try directory(at: parentPlace)
    // The parent directory is new, so its date of modification needs no update.
    let name = FileName(bytes: Array(place[(parentPlace.isEmpty ? 0 : parentPlace.count + 1)...]))!
    transaction.put(.entry(parent: parent, name: name), DirectoryEntry(kind: .file, file: file).encoded)
  }

  /// The path of a file at a place.
  func path(at place: [UInt8]) -> String { path + "/" + String(decoding: place, as: UTF8.self) }
}
