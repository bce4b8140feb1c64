import ContainerStore
public import Foundation

extension SecureFileManager {
  /// The scheme of URLs in the style ``URLStyle/container``.
  public static let urlScheme = "securefile"

  /// What URLs look like that the manager hands out, and which ones it takes.
  public enum URLStyle: Sendable {
    /// `securefile://<container id>/Documents/a.txt`; no others are taken, nor those of another container.
    case container
    /// `file:///Documents/a.txt`, for ported code; those of the other style, and URLs without a scheme, are taken, too.
    case file
  }

  /// The URL of a path in the manager's style. Directories' end with a slash.
  public func url(forPath path: String, isDirectory: Bool) -> URL {
    let path = place(path)
    switch urlStyle {
    case _ where path.isEmpty: return Self.nothing[urlStyle]!
    case .file: return URL(fileURLWithPath: path, isDirectory: isDirectory)
    case .container:
      var components = URLComponents()
      components.scheme = Self.urlScheme
      components.host = store.id.hex
      components.path = isDirectory ? path.withSlashAtEnd : path
      guard let url = components.url else {
        preconditionFailure("a scheme, a host of hex digits and an absolute path are a URL")
      }
      return url
    }
  }

  /// What an empty path, which names nothing, is as a URL: one without a path, that is not taken for the root.
  private static let nothing: [URLStyle: URL] = [
    .file: URL(string: "file:")!, .container: URL(string: urlScheme + ":")!,
  ]

  /// The path that a URL names, without a slash at its end; throws `CocoaError` with `fileReadUnsupportedScheme` for one that is not of this container.
  public func path(for url: URL) throws -> String { try path(for: url, .reading) }

  func path(for url: URL, _ access: FileAccess) throws -> String {
    switch url.scheme {
    case Self.urlScheme where url.host() == store.id.hex:
      return try Self.containerPath(of: url, access)
    case "file" where urlStyle == .file, nil where urlStyle == .file: return url.filePath
    default:
      throw CocoaError(
        access == .reading ? .fileReadUnsupportedScheme : .fileWriteUnsupportedScheme,
        userInfo: [
          NSURLErrorKey: url,
          NSLocalizedFailureReasonErrorKey: "this URL is not one of this container",
          NSLocalizedRecoverySuggestionErrorKey:
            "take URLs from this container's file manager, or set urlStyle",
        ])
    }
  }
}

extension SecureFileManager {
  /// The root for a URL without a path. What is no path when it is decoded must not be taken for the root, nor an encoded slash for
  /// one that separates names.
  private static func containerPath(of url: URL, _ access: FileAccess) throws -> String {
    let encoded = url.path(percentEncoded: true)
    if encoded.isEmpty { return "/" }
    let path = url.filePath
    guard !path.isEmpty, !encoded.utf8.containsEncodedSlash else {
      throw CocoaError(
        access == .reading ? .fileReadInvalidFileName : .fileWriteInvalidFileName,
        userInfo: [
          NSURLErrorKey: url,
          NSLocalizedFailureReasonErrorKey: "this URL has a name that is not UTF-8, or one with a slash",
          NSLocalizedRecoverySuggestionErrorKey: "take URLs from this container's file manager",
        ])
    }
    return path
  }
}

extension String.UTF8View {
  fileprivate var containsEncodedSlash: Bool {
    indices.contains { self[$0...].starts(with: "%2F".utf8) || self[$0...].starts(with: "%2f".utf8) }
  }
}

extension URL {
  /// The path that the URL names, without its encoding and without a slash at its end.
  var filePath: String { path(percentEncoded: false).withoutTrailingSlashes }
}

/// Slashes are bytes: as a character, one with a combining mark behind it is not equal to a slash.
extension String {
  var beginsWithSlash: Bool { utf8.first == UInt8(ascii: "/") }

  var withSlashAtEnd: String { utf8.last == UInt8(ascii: "/") ? self : self + "/" }

  /// The names of a path, without `.` and empty ones.
  var pathComponents: [String] {
    utf8.split(separator: UInt8(ascii: "/")).map { String(Substring($0)) }.filter { $0 != "." }
  }

  var withoutTrailingSlashes: String {
    guard utf8.last == UInt8(ascii: "/"), utf8.count > 1 else { return self }
    let bytes = utf8.reversed().drop { $0 == UInt8(ascii: "/") }
    return bytes.isEmpty ? "/" : String(decoding: bytes.reversed(), as: UTF8.self)
  }
}
