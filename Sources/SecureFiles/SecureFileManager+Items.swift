public import ContainerStore
public import Foundation

extension SecureFileManager {
  /// What ``items(atPath:options:)`` knows of a file, directory or link.
  public struct Item: Sendable {
    /// Names from the directory on, joined with slashes.
    public let path: String
    /// All that the store knows of it, as of the same moment as the others.
    public let attributes: FileAttributes

    /// File, directory or symbolic link.
    public var type: FileAttributeType { attributes.kind.attributeType }
    /// Bytes of contents.
    public var size: UInt64 { attributes.size }
    /// When it was made, or what was set.
    public var creationDate: Date { Date(nanoseconds: attributes.created) }
    /// When its contents, or what is directly in it, last changed, or what was set.
    public var modificationDate: Date { Date(nanoseconds: attributes.modified) }
  }

  /// What is below a directory when the first item is asked for, read in pieces as it is asked for, on a thread of its own.
  ///
  /// Parents come before what is in them, names in bytewise order; links are not followed. Memory does not depend on how much there is,
  /// and what is changed meanwhile does not show. Takes the options `skipsSubdirectoryDescendants` and `skipsHiddenFiles` (with a dot
  /// in front, and everything in them), and passes over the others. Throws ``SecureFilesError`` when it is read: `noSuchFile`,
  /// `notADirectory`, `closed`, `cancelled` when the task is.
  public func items(atPath path: String, options: FileManager.DirectoryEnumerationOptions = []) -> Items {
    Items(
      store: store, path: place(path), isRecursive: !options.contains(.skipsSubdirectoryDescendants),
      skipsHidden: options.contains(.skipsHiddenFiles))
  }

  /// The sequence that ``items(atPath:options:)`` returns.
  public struct Items: AsyncSequence, Sendable {
    public typealias Element = Item

    fileprivate let store: Container
    fileprivate let path: String
    fileprivate let isRecursive: Bool
    fileprivate let skipsHidden: Bool

    /// Each goes through everything, as it is when it is asked for the first item.
    public func makeAsyncIterator() -> Iterator { Iterator(items: self) }

    /// Goes through the items once.
    public struct Iterator: AsyncIteratorProtocol {
      private static let itemsPerPiece = 512

      private let items: Items
      private var listing: Listing?
      private var piece: ArraySlice<ListedFile> = []
      private var isAtEnd = false

      fileprivate init(items: Items) { self.items = items }

      public mutating func next() async throws -> Item? { try await next(isolation: nil) }

      public mutating func next(isolation actor: isolated (any Actor)?) async throws -> Item? {
        if Task.isCancelled { throw SecureFilesError(.cancelled, path: items.path) }
        if piece.isEmpty, !isAtEnd { try await read() }
        return piece.popFirst().map { Item(path: $0.path, attributes: $0.attributes) }
      }

      private mutating func read(isolation actor: isolated (any Actor)? = #isolation) async throws {
        let (items, known) = (items, listing)
        let (listing, files) = try await BlockingCall.run(progress: nil) { _ in
          let listing =
            try known
            ?? items.store.listing(
              of: items.path, recursively: items.isRecursive, skipsHidden: items.skipsHidden)
          return (listing, try listing.next(Self.itemsPerPiece))
        }
        self.listing = listing
        piece = files[...]
        isAtEnd = files.isEmpty
      }
    }
  }
}
