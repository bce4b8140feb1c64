extension Sending {
  /// The files and folders of a message, and their places below the message's directory in the inbox.
  struct Message {
    struct File {
      var path: String
      var found: FoundFile
      var place: [UInt8]
    }

    var files: [File] = []
    var directories: [[UInt8]] = []

    init(_ attachments: [String], in records: CatalogSnapshot) throws {
      let items = try records.attachedItems(attachments)
      for (original, found) in items where found.inode.kind == .symbolicLink {
        throw ContainerError(
          .cannotStore, path: StorePath.text(original), detail: "a symbolic link cannot be sent")
      }
      let folders = items.filter { $0.found.inode.kind == .directory }
      let others = items.filter { $0.found.inode.kind != .directory }
      let places = InboxPlaces(
        files: others.map { InboxPlaces.bytes($0.original) },
        directories: folders.map { InboxPlaces.bytes($0.original) })
      directories = places.directories
      for (item, place) in zip(others, places.files) {
        // Otherwise the file was named twice, or is part of a named folder.
        guard let place else { continue }
        files.append(File(path: StorePath.text(item.original), found: item.found, place: place))
      }
    }
  }
}
