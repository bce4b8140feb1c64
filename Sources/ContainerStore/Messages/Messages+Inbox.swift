extension CatalogSnapshot {
  func arrivedMessages() throws -> [ArrivedMessage] {
    guard let inbox = try directoryIfThere([InboxName.inbox]) else { return [] }
    var messages: [ArrivedMessage] = []
    for (sender, entry) in try entries(inbox) where entry.kind == .directory {
      for (time, entry) in try entries(entry.file) where entry.kind == .directory {
        guard let date = InboxName.date(time) else { continue }
        var message = ArrivedMessage(
          directory: StorePath.text(InboxName.directory(of: sender) + [time]), sender: sender.description,
          date: date, fileCount: 0, byteCount: 0)
        for (_, file) in try subtree(entry.file) where file.inode.kind != .directory {
          message.fileCount += 1
          let (sum, overflows) = message.byteCount.addingReportingOverflow(file.inode.size)
          message.byteCount = overflows ? .max : sum
        }
        messages.append(message)
      }
    }
    // Messages of the same millisecond keep the order of their senders.
    return messages.enumerated().sorted { ($0.element.date, $0.offset) < ($1.element.date, $1.offset) }
      .map(\.element)
  }
}

extension Messages {
  func removeArrivedMessages(_ directories: [String], endingQueued arrivals: [UInt64]) throws {
    let places = try directories.map { directory in
      let path = try StorePath(directory)
      let names = path.parts.compactMap { $0 }
      guard names.count == 3, path.parts.count == 3, names[0] == InboxName.inbox,
        InboxName.date(names[2]) != nil
      else {
        throw ContainerError(.invalidArgument, path: directory, detail: "no message's directory in the inbox")
      }
      return names
    }
    try store.namingPath(store.place) {
      try store.transaction { transaction in
        for arrival in arrivals { try transaction.endQueued(arrival) }
        for names in places {
          guard let parent = try transaction.directoryIfThere(names.dropLast()),
            let directory = try transaction.directoryIfThere(names)
          else { continue }
          try transaction.dropSubtree(directory)
          try transaction.unlink(parent, names[2])
        }
      }
    }
  }
}
