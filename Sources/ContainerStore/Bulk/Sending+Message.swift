extension Sending {
  /// The files and folders of a message, and their paths relative to the message's inbox directory.
  struct Message {
    struct File {
      var path: String
      var found: FoundFile
      var names: [FileName]
    }

    var files: [File] = []
    var directories: [[FileName]] = []

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
      directories = places.directories.map(InboxPlaces.names)
      for (item, place) in zip(others, places.files) {
        // Otherwise the file was named twice, or is part of a named folder.
        guard let place else { continue }
        files.append(
          File(path: StorePath.text(item.original), found: item.found, names: InboxPlaces.names(place)))
      }
    }
  }
}
