// Who shows a page has a runtime: one import is enough.
@_exported public import AppRuntime
public import Foundation
public import Logging
import SecureFiles

/// The launcher of an app in a browser on this machine (Documentation/LAUNCHER-PAGE.md).
///
/// ```swift
/// import LauncherPage
///
/// func show(_ runtime: AppRuntime) async throws -> LauncherPage {
///   let page = try await LauncherPage(of: runtime)
///   print("open \(page.link.path)")
///   return page
/// }
/// ```
///
/// Any thread may use it.
public final class LauncherPage: Sendable {
  /// Where its parts are, and what the app does for it.
  public struct Options: Sendable {
    /// The directory of the file that leads a browser to the page: of this user, and open to nobody else. It is made when it is not there.
    public var directory = URL(filePath: UserDirectory.path)
    /// Where files are saved; nil: the user's downloads, or the home directory without any.
    public var savesTo: URL?
    /// Opens a file of the inbox in the app, by its path in the container; nil: the page does not offer that.
    public var opens: (@Sendable (String) -> Void)?
    /// After so long without anything that a person does in it a tab is logged out.
    public var sessionTime: Duration = .seconds(1800)
    /// The language of the texts, as BCP 47 has it. The page runs from right to left if it does.
    public var language = "en"
    /// Other texts than the page's own, by theirs.
    public var texts: [String: String] = [:]
    /// The clock of sessions.
    public var clock: any AppClock = SystemClock()
    /// The logger for what nobody can catch. Its label is `opendynamics.launcher`.
    public var logger = Logger(label: "opendynamics.launcher")

    /// Makes the default options.
    public init() {}
  }

  /// A file that leads a browser to the page, for this user only.
  public let link: URL
  /// The address. Without what stands in ``link`` it shows nothing.
  public let address: URL
  private let server: PageServer
  private let site: PageSite
  private let actions: PageActions
  private let following: Task<Void, Never>

  /// Begins to answer. Throws `LauncherPageError`, and what the system says when there is no port or no place for the link.
  public init(of runtime: AppRuntime, options: Options = Options()) async throws {
    if let fault = ConnectionOwner.fault { throw LauncherPageError(.noOwners, detail: fault) }
    let file = try await BlockingCall.run {
      [directory = options.directory, id = runtime.application.id.text] in
      try PageLink(in: directory, for: id)
    }
    link = file.url
    server = try await PageServer()
    address = URL(string: server.origin + "/")!
    let board = Board()
    let follower = PageFollower(runtime, board, options)
    actions = PageActions(runtime, follower, options)
    site = PageSite(server.origin, board, actions, file, options)
    do {
      try await BlockingCall.run { [site] in try site.writeLink() }
    } catch {
      await server.stop()
      throw error
    }
    server.start { [site] in await site.answer($0) }
    following = Task { await follower.run() }
  }

  /// Answers nothing any more; the link is gone.
  public func stop() async {
    following.cancel()
    actions.stop()
    site.stop()
    await server.stop()
    await following.value
  }
}

/// Why there is no page.
public struct LauncherPageError: Error, Sendable, CustomStringConvertible {
  /// A kind of failure.
  public enum Code: String, Sendable, CaseIterable {
    /// Nobody says whose a connection is.
    case noOwners
    /// The place of the link is not this user's own.
    case unsafeDirectory
    /// The link cannot be written.
    case linkNotWritten
  }

  /// The kind of failure.
  public let code: Code
  /// What was found.
  public let detail: String

  init(_ code: Code, detail: String) { (self.code, self.detail) = (code, detail) }

  /// Says what failed, and what to do.
  public var description: String {
    switch code {
    case .noOwners:
      "there is no launcher page: \(detail); run the app where the kernel lists connections (/proc/net/tcp)"
    case .unsafeDirectory: "the launcher's link has no safe place: \(detail)"
    case .linkNotWritten: "the launcher's link cannot be written: \(detail); choose another Options.directory"
    }
  }
}
