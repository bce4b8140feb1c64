import ContainerStore
public import Foundation

/// What Foundation's `FileManager` has and a container cannot have: clouds, groups of applications, and volumes that come and go.
extension SecureFileManager {
  /// Nil: no cloud keeps a container's files.
  public var ubiquityIdentityToken: (any NSCopying & NSObjectProtocol)? { nil }

  /// Nil: no cloud keeps a container's files.
  public func url(forUbiquityContainerIdentifier containerIdentifier: String?) -> URL? { nil }

  /// Nil: nobody shares a container by an identifier. Send files to another container instead.
  public func containerURL(forSecurityApplicationGroupIdentifier groupIdentifier: String) -> URL? { nil }

  /// False.
  public func isUbiquitousItem(at url: URL) -> Bool { false }

  /// Throws `CocoaError` with `featureUnsupported`.
  public func setUbiquitous(_ flag: Bool, itemAt url: URL, destinationURL: URL) throws {
    throw unsupported(url)
  }

  /// Throws `CocoaError` with `featureUnsupported`.
  public func startDownloadingUbiquitousItem(at url: URL) throws { throw unsupported(url) }

  /// Throws `CocoaError` with `featureUnsupported`.
  public func evictUbiquitousItem(at url: URL) throws { throw unsupported(url) }

  /// Throws `CocoaError` with `featureUnsupported`.
  public func url(
    forPublishingUbiquitousItemAt url: URL, expiration outDate: UnsafeMutablePointer<NSDate?>?
  ) throws -> URL {
    throw unsupported(url)
  }

  /// Fails with `featureUnsupported`: close the container instead.
  public func unmountVolume(
    at url: URL, options mask: UnmountOptions = [], completionHandler: @escaping ((any Error)?) -> Void
  ) {
    completionHandler(unsupported(url))
  }

  /// Foundation's are not on every platform.
  public struct UnmountOptions: OptionSet, Sendable {
    public let rawValue: UInt

    public init(rawValue: UInt) { self.rawValue = rawValue }

    /// Without effect.
    public static let allPartitionsAndEjectDisk = UnmountOptions(rawValue: 1)
    /// Without effect.
    public static let withoutUI = UnmountOptions(rawValue: 2)
  }

  /// Fails with `featureUnsupported`; there are never services.
  public func getFileProviderServicesForItem(
    at url: URL, completionHandler: @escaping ([String: Any]?, (any Error)?) -> Void
  ) {
    completionHandler(nil, unsupported(url))
  }

  private func unsupported(_ url: URL) -> any Error {
    let path = url.filePath
    return cocoaError(SecureFilesError(.notSupported, path: path), path: path, .writing, url: url)
  }
}
