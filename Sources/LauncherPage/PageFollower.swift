import AppKinetics
import AppRuntime
import Foundation
import Locks
import SecureFiles

/// Puts on the board what the app is, what its launcher shows, and what becomes of its messages.
final class PageFollower: Sendable {
  private let runtime: AppRuntime
  private let board: Board
  private let options: LauncherPage.Options
  /// Wakes whoever looks at messages.
  private let looks: AsyncStream<Void>
  private let looking: AsyncStream<Void>.Continuation
  private let wantsInbox = Guarded(false)
  /// Names of files by the message's directory, while the message stays what it was.
  private let names = Guarded<[String: (message: InboxMessage, names: [String])]>([:])

  init(_ runtime: AppRuntime, _ board: Board, _ options: LauncherPage.Options) {
    (self.runtime, self.board, self.options) = (runtime, board, options)
    (looks, looking) = AsyncStream.makeStream(bufferingPolicy: .bufferingNewest(1))
  }

  /// Looks at messages and the inbox again.
  func look() {
    wantsInbox.withLock { $0 = true }
    looking.yield()
  }

  /// Until the task is cancelled, or the runtime stops.
  func run() async {
    await withDiscardingTaskGroup { group in
      group.addTask { await self.followMessages() }
      var hasLauncher = false
      for await authorization in runtime.authorizationChanges {
        board.show([(.app, AppPart(authorization, runtime.application.name, options))])
        guard !hasLauncher, let launcher = runtime.launcher else { continue }
        hasLauncher = true
        group.addTask { await self.follow(launcher) }
      }
      board.seal()
      board.show([(.app, AppPart(nil, runtime.application.name, options))])
      looking.finish()
    }
  }

  private func follow(_ launcher: Launcher) async {
    var news: Task<Void, Never>?
    var followed: AppServices?
    var shown: (apps: [LauncherModel.App], epoch: UInt64)?
    func end() {
      board.seal()
      names.withLock { $0 = [:] }
      news?.cancel()
      (news, followed) = (nil, nil)
    }
    for await model in launcher.changes {
      let services = model.isAuthorized ? try? runtime.opened().services : nil
      // Of a seal that has an end by now nothing else is seen.
      if services !== followed { end() }
      guard let services else { continue }
      let epoch = board.begin()
      var parts: [(Board.Name, any Encodable)] = [
        (.launcher, LauncherPart(model)), (.traffic, TrafficPart(model)),
      ]
      // A thousand apps with their pictures, which seldom change.
      if shown?.epoch != epoch || shown?.apps != model.apps { parts.append((.apps, AppsPart(model))) }
      shown = (model.apps, epoch)
      board.show(parts, of: epoch)
      if model.presented == .certificates, let certificates = await launcher.certificates() {
        board.show([(.certificates, CertificatesPart(certificates))], of: epoch)
      }
      guard followed == nil else { continue }
      followed = services
      news = Task { for await _ in services.messageChanges { looking.yield() } }
      look()
    }
    end()
  }

  private func followMessages() async {
    var known: Set<String> = []
    var listed: Duration?
    for await _ in looks {
      // Nobody is there: a tab that comes looks by itself.
      guard board.hasTabs, let epoch = board.epoch, let opened = try? runtime.opened() else { continue }
      // What is nothing but a launcher has no place for them.
      if runtime.launcher?.model.staysOpen == true { continue }
      do {
        let messages = MessagesPart(
          await opened.services.outgoing(), await opened.services.arriving())
        board.show([(.messages, messages)], of: epoch)
        // The inbox is read from the container, which stores what it has to for that: not for each byte that comes.
        let (now, ids) = (options.clock.now, messages.ids)
        let isDue = listed.map { now - $0 >= Self.inboxPause } ?? true
        if isDue || ids != known || !messages.isMoving || wantsInbox.withLock({ $0 }) {
          wantsInbox.withLock { $0 = false }
          (known, listed) = (ids, now)
          let inbox = try await BlockingCall.run { try self.inbox(of: opened.container) }
          board.show([(.inbox, inbox)], of: epoch)
        }
      } catch {
        // Of a seal in between, too.
        options.logger.notice("the launcher cannot read the messages", metadata: ["error": "\(error)"])
      }
      try? await Task.sleep(for: .milliseconds(250))
    }
  }

  /// While messages are under way.
  private static let inboxPause = Duration.seconds(5)

  private func inbox(of container: SecureContainer) throws -> InboxPart {
    let all = try container.inboxMessages()
    let known = names.withLock { $0 }
    var read: [String: (message: InboxMessage, names: [String])] = [:]
    let messages = all.suffix(InboxPart.countMax).reversed().map { message in
      let names: [String]
      if let known = known[message.directory], known.message == message {
        names = known.names
      } else {
        names = Self.names(in: message.directory, of: container)
      }
      read[message.directory] = (message, names)
      return InboxPart.Message(
        directory: message.directory, app: message.sender, date: message.date.timeIntervalSince1970,
        files: message.fileCount, bytes: message.byteCount, names: names)
    }
    names.withLock { $0 = read }
    return InboxPart(messages: Array(messages), count: all.count)
  }

  /// The first files, however deep they are.
  private static func names(in directory: String, of container: SecureContainer) -> [String] {
    guard let items = container.files.enumerator(atPath: directory) else { return [] }
    var names: [String] = []
    while names.count < InboxPart.nameCountMax, let name = items.nextObject() as? String {
      if items.fileAttributes?[.type] as? FileAttributeType != .typeDirectory { names.append(name) }
    }
    return names
  }
}
