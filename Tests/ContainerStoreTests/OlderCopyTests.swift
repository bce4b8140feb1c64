import OpenDynamicsTesting
import SodiumPrimitives
import TestSupport
import Testing

@testable import ContainerStore

private let secret = TestSecret.rawKey(7)

/// An older copy of a container whose files are copied over those of the newer one, like `cp -r`: what is newer and has no older
/// namesake stays there.
struct OlderCopyTests {
  private static func options() -> Container.Options {
    var options = testOptions()
    options.checkpointByteCounts = 1 << 13...1 << 13
    return options
  }

  /// The disk before each of some sessions is closed, and after it: with journals alone, with tables alone, with checkpoints on the way, compacted.
  private static func history() throws -> [(image: DiskImage, tree: Tree)] {
    let io = RecordingIO()
    try Container.create(io, secret, options()).close()
    var history: [(image: DiskImage, tree: Tree)] = []
    for session in 0..<14 {
      let container = try Container.open(
        io: io, credential: secret.credential(), mode: .readWrite, options: options())
      for i in 0..<(session % 3 == 1 ? 40 : 2) {
        try container.write(testBytes(300, seed: UInt64(session * 100 + i)), to: "/file\(i)")
      }
      container.store.backgroundWork.wait()
      if session % 4 == 2 { container.store.rewriteCatalogAtClosing() }
      if session % 5 == 4 { try container.compact() }
      history.append((io.image, try container.tree()))
      try container.close()
      history.append((io.image, history[history.count - 1].tree))
    }
    return history
  }

  @Test func isRefusedAndRemovesNothing() throws {
    let history = try Self.history()
    // An older copy was closed; its newer original may be open.
    for (i, older) in history.enumerated() where i % 2 == 1 {
      for (j, newer) in history.enumerated().dropFirst(i + 1)
      where (j - i < 4 || j > 25) && newer.image["superblock"] != older.image["superblock"] {
        var image = newer.image
        for (name, inode) in older.image.names { image[name] = older.image.contents[inode] }
        for mode in [Container.Mode.readOnly, .readWrite] {
          let io = RecordingIO(image)
          expectError(.rolledBack, of: "\(i) over \(j), \(mode)") {
            try Container.open(io: io, credential: secret.credential(), mode: mode, options: Self.options())
          }
          #expect(io.image == image, "\(i) over \(j)")
        }
        let report = try Container.verify(image, secret)
        #expect(report.findings.map(\.kind) == [.rolledBack], "\(i) over \(j): \(report.findings)")
      }
    }
  }

  /// Nothing of it is taken for a later state in the container itself.
  @Test func eachStateOpensOnItsOwn() throws {
    for (i, state) in try Self.history().enumerated() {
      let container = try Container.open(state.image, secret)
      #expect(try container.tree() == state.tree, "\(i)")
      try container.close()
    }
  }

  /// What a crash leaves of the next update is no later state: a table, and a journal without a commit.
  @Test func theNextUpdatesFilesAreGarbage() throws {
    let history = try Self.history()
    let last = history[history.count - 1]
    let sequence = try Container.open(last.image, secret).store.withSuperblock { slot, _, _ in slot.sequence }
    for (update, isLater) in [
      (sequence, false), (sequence + 1, false), (sequence + 2, true), (sequence + 1 << 20, true),
      (UInt64.max, false),
    ] {
      for folder in ["journal/", "catalog/", "copy/"] {
        var image = last.image
        image[folder + Identifier.ofFile(namedIn: update).hex] = testBytes(5000, seed: 1)
        let error = try Container.openingError(image, secret)
        #expect(error?.code == (isLater ? .rolledBack : nil), "\(folder) \(update) after \(sequence)")
      }
    }
  }

  /// The superblock alone is older, and what it names is gone: it is no damage of a journal, which a repair would give up.
  @Test func anOlderSuperblockAloneIsNoDamage() throws {
    let history = try Self.history()
    let newer = history[history.count - 1]
    var count = 0
    for (i, older) in history.enumerated() where older.image["superblock"] != newer.image["superblock"] {
      var image = newer.image
      image["superblock"] = older.image["superblock"]
      for salvages in [false, true] {
        var options = Self.options()
        options.salvages = salvages
        let io = RecordingIO(image)
        do {
          let container = try Container.open(
            io: io, credential: secret.credential(), mode: .readWrite, options: options)
          // An update that named no file: everything is there.
          #expect(try container.tree() == newer.tree, "\(i)")
          try container.close()
        } catch ContainerError.rolledBack {
          #expect(io.image == image, "\(i)")
          count += 1
        }
      }
    }
    #expect(count > 20)
  }

  @Test func isOpenedWhenThatIsAccepted() throws {
    let history = try Self.history()
    let (older, newer) = (history[9], history[history.count - 1])
    var image = newer.image
    for (name, inode) in older.image.names { image[name] = older.image.contents[inode] }
    let io = RecordingIO(image)
    var options = Self.options()
    options.acceptsOlderState = true
    let reader = try Container.open(
      io: io, credential: secret.credential(), mode: .readOnly, options: options)
    #expect(try reader.tree() == older.tree && reader.findings.map(\.kind) == [.rolledBack])
    try reader.close()
    #expect(io.image == image)
    try Container.open(io: io, credential: secret.credential(), mode: .readWrite, options: options).close()
    #expect(try Container.open(io.image, secret).tree() == older.tree)
  }
}
