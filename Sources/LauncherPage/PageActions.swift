import AppKinetics
import AppRuntime
import Foundation
import Locks
import SecureFiles

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

/// Carries out what a person does in the page.
final class PageActions: Sendable {
  /// What has come of it: nothing is said of what went well and is seen.
  struct Outcome: Encodable {
    /// Why nothing has changed.
    var ignored: String?
    /// What has failed.
    var error: String?
    /// Where a file was saved.
    var saved: String?
  }

  private let runtime: AppRuntime
  private let follower: PageFollower
  private let options: LauncherPage.Options
  private let hasStopped = Guarded(false)

  init(_ runtime: AppRuntime, _ follower: PageFollower, _ options: LauncherPage.Options) {
    (self.runtime, self.follower, self.options) = (runtime, follower, options)
  }

  /// Copies that are under way end, and nothing of them is left.
  func stop() { hasStopped.withLock { $0 = true } }

  /// A tab is there, and wants to see the messages.
  func tabCame() { follower.look() }

  func carryOut(_ action: PageAction) async -> Outcome {
    runtime.noteActivity()
    guard let launcher = runtime.launcher, launcher.model.isAuthorized, let opened = try? runtime.opened()
    else {
      return Outcome(ignored: "notAuthorized")
    }
    if action.kind == .active { return Outcome() }
    if let input = action.input { return Outcome(ignored: launcher.apply(input).map { "\($0)" }) }
    if action.kind == .setting, let id = action.id {
      return Outcome(ignored: launcher.apply(.selectSetting(.own(id))).map { "\($0)" })
    }
    do {
      defer { follower.look() }
      return try await carryOut(action, opened)
    } catch {
      return Outcome(error: "\(error)")
    }
  }

  private func carryOut(_ action: PageAction, _ opened: AppRuntime.Opened) async throws -> Outcome {
    switch action.kind {
    case .cancelSent:
      guard let request = action.id.flatMap({ RequestID($0) }),
        let app = action.app.flatMap({ try? ApplicationID($0) })
      else { return Outcome(ignored: "unknown") }
      let isCancelled =
        try await action.isReply == true
        ? opened.services.cancelReply(to: request, of: app) : opened.services.cancelRequest(request, to: app)
      return Outcome(ignored: isCancelled ? nil : "over")
    case .cancelArriving:
      let transfer = await opened.services.arriving().first {
        "\($0.request)" == action.id && $0.sender.text == action.app
      }
      return Outcome(ignored: await transfer?.cancel() == true ? nil : "over")
    case .openFile:
      guard let opens = options.opens, let path = action.path else { return Outcome(ignored: "unknown") }
      let (_, isThere) = try await BlockingCall.run { try Self.file(path, in: opened.container) }
      guard isThere else { return Outcome(ignored: "unknown") }
      opens(path)
      return Outcome()
    case .saveFile, .saveMessage:
      guard let path = action.path else { return Outcome(ignored: "unknown") }
      let folder = options.savesTo?.path ?? Self.downloads
      // Nothing is written in plain once the app is not shown any more.
      let mayGoOn: @Sendable () -> Bool = { [self] in
        !hasStopped.withLock { $0 } && runtime.launcher?.model.isAuthorized == true
          && (try? runtime.opened().services) === opened.services
      }
      return try await BlockingCall.run { [isMessage = action.kind == .saveMessage] in
        try Self.save(path, isMessage: isMessage, of: opened.container, in: folder, while: mayGoOn)
      }
    case .removeMessage:
      return try await BlockingCall.run {
        let message = try opened.container.inboxMessages().first { $0.directory == action.path }
        guard let message else { return Outcome(ignored: "over") }
        try opened.container.removeInboxMessages([message])
        return Outcome()
      }
    default: return Outcome(ignored: "unknown")
    }
  }

  /// Pictures of apps, by their names on the page.
  func icons(_ names: [String]) -> [String: String] {
    guard let launcher = runtime.launcher else { return [:] }
    let wanted = Set(names.prefix(64))
    var icons: [String: String] = [:]
    for icon in launcher.model.apps.lazy.compactMap(\.icon) {
      guard let name = PagePicture.name(icon), wanted.contains(name) else { continue }
      icons[name] = PagePicture.text(icon)
    }
    return icons
  }

  // MARK: Files

  private static var downloads: String {
    FileManager.default.urls(for: .downloadsDirectory, in: .userDomainMask).map(\.path)
      .first { access($0, W_OK) == 0 } ?? NSHomeDirectory()
  }

  /// The message of the inbox that a path lies in, and whether a file is there. A path that leads elsewhere has none.
  private static func file(
    _ path: String, in container: SecureContainer
  ) throws -> (message: InboxMessage?, isThere: Bool) {
    // By bytes: a slash and a mark behind it are one character.
    let names = path.utf8.split(separator: UInt8(ascii: "/"))
    guard !names.contains(where: { $0.elementsEqual("..".utf8) || $0.elementsEqual(".".utf8) }),
      let message = try container.inboxMessages().first(where: {
        path.utf8.elementsEqual($0.directory.utf8) || path.utf8.starts(with: ($0.directory + "/").utf8)
      })
    else { return (nil, false) }
    let attributes = try? container.files.attributesOfItem(atPath: path)
    return (message, attributes?[.type] as? FileAttributeType == .typeRegular)
  }

  private static func save(
    _ path: String, isMessage: Bool, of container: SecureContainer, in folder: String,
    while mayGoOn: () -> Bool
  ) throws -> Outcome {
    let (message, isFile) = try file(path, in: container)
    guard let message, isFile != isMessage else { return Outcome(ignored: "unknown") }
    if isFile {
      return Outcome(saved: try PlainCopy.make(of: path, container.files, in: folder, while: mayGoOn))
    }
    var count = 0
    let items = container.files.enumerator(atPath: message.directory)
    while let name = items?.nextObject() as? String {
      guard items?.fileAttributes?[.type] as? FileAttributeType == .typeRegular else { continue }
      _ = try PlainCopy.make(
        of: message.directory + "/" + name, container.files, in: folder, while: mayGoOn)
      count += 1
    }
    return count > 0 ? Outcome(saved: folder) : Outcome(ignored: "over")
  }
}
