import ContainerStore
import Foundation
import SecureFiles
import ServiceValues
import ServiceWire
import Synchronization

/// Attachments between apps of one process: from container to container, before the message that they belong to is sent.
extension Runtime {
  // MARK: Requests

  /// Takes a request that has files, or comes after one whose files are not there yet: it is sent when those before it were.
  func enqueue(_ sent: SentRequest, _ core: inout Core) {
    let application = sent.application
    let limit = peer(application, &core).exchange.limits.queuedRequestCountMax
    guard core.peers[application]?.unsubmitted.count ?? 0 < limit else {
      let error = ServicesError(.limitExceeded, detail: "requests that wait for files")
      return sent.end(.refused, .failure(error), .didFail(error))
    }
    sent.enqueue()
    core.peers[application]?.unsubmitted.append(sent)
    core.peers[application]?.sent[sent.id.id] = sent
    if isOnItsWay(to: application, core) { sent.accept() }
    withChannel(to: application, &core) { result in
      switch result {
      case .failure(let error):
        sent.end(.refused, .failure(error), .didFail(error))
        self.core.perform { self.forgetUnsubmitted(sent, &$0) }
      case .success(let process):
        sent.accept()
        if sent.beginCopying() { Task { await self.deliver(sent, to: process) } }
      }
    }
  }

  private func deliver(_ sent: SentRequest, to process: WireID) async {
    do {
      let receiver = try await receiver(process, of: sent.application)
      let wire = WireRequest.with {
        $0.serviceID = sent.request.service.text
        $0.version = sent.request.version.text
        $0.method = sent.request.method
      }
      // Nothing is copied for a request that would be refused.
      try await receiver.core.result { core in
        Result { () throws(ServicesError) in _ = try receiver.offered(wire, from: self.application.id, core) }
      }.get()
      guard !sent.isProgressCancelled else { throw ServicesError(.cancelled) }
      for path in sent.request.attachments { sent.tell(.didStartSending(attachment: path)) }
      let files = try await copy(
        sent.request.attachments, to: receiver, named: sent.id.description, progress: sent.progress)
      sent.keep(files.map(\.path), of: receiver)
      receiver.core.perform { core in
        core.peers[self.application.id] = receiver.peer(self.application.id, &core)
        core.peers[self.application.id]?.arrivedFiles[sent.id.id] = files
      }
      core.perform { core in
        if sent.endCopying(fileCount: files.count) {
          self.submitReady(sent.application, &core)
        } else {
          self.endCancelled(sent, &core)
        }
      }
    } catch {
      let error = Self.servicesError(error)
      sent.end(error.code == .cancelled ? .cancelled : .refused, .failure(error), .didFail(error))
      core.perform { self.forgetUnsubmitted(sent, &$0) }
    }
  }

  /// Sends what waits, in order, up to the first request whose files are not there yet.
  private func submitReady(_ application: ApplicationID, _ core: inout Core) {
    guard let unsubmitted = core.peers[application]?.unsubmitted else { return }
    let count = unsubmitted.prefix { $0.hasEnded || $0.readyFileCount != nil }.count
    guard count > 0 else { return }
    core.peers[application]?.unsubmitted.removeFirst(count)
    for sent in unsubmitted.prefix(count) {
      if let fileCount = sent.submit() {
        submit(sent, attachmentCount: fileCount, &core)
      } else {
        cancelUnsubmitted(sent, &core)
      }
    }
  }

  private func cancelUnsubmitted(_ sent: SentRequest, _ core: inout Core) {
    let error = ServicesError(.cancelled)
    sent.end(.cancelled, .failure(error), .didFail(error))
    removeFiles(of: sent)
    core.peers[sent.application]?.sent[sent.id.id] = nil
  }

  /// A request that was cancelled before it was sent; those behind it go on.
  func endCancelled(_ sent: SentRequest, _ core: inout Core) {
    cancelUnsubmitted(sent, &core)
    submitReady(sent.application, &core)
  }

  private func forgetUnsubmitted(_ sent: SentRequest, _ core: inout Core) {
    core.peers[sent.application]?.sent[sent.id.id] = nil
    submitReady(sent.application, &core)
  }

  // MARK: Replies

  /// Files in the inbox of a consumer that does not have the reply yet.
  struct ReplyFiles: Sendable {
    let receiver: Runtime
    let paths: [String]
  }

  /// Brings a reply's files into the consumer's inbox. Throws `general` for a request that cannot be replied to.
  func sendFiles(_ paths: [String], replyingTo request: IncomingRequest) async throws -> ReplyFiles {
    let begun: Result<(WireID?, Offer.Handler), ServicesError> = await core.result { core in
      guard let peer = core.peers[request.sender], let incoming = peer.incoming[request.id.id],
        !incoming.hasReplied, !incoming.isCopyingFiles
      else { return .failure(Self.cannotReply) }
      core.peers[request.sender]?.incoming[request.id.id]?.isCopyingFiles = true
      return .success((peer.process, incoming.offer.handler))
    }
    let (process, handler) = try begun.get()
    do {
      let receiver = try await receiver(process, of: request.sender)
      if case .object(let provider) = handler {
        callbackQueue.async {
          for path in paths { provider.didStartSending(attachment: path, for: request) }
        }
      }
      let files = try await copy(paths, to: receiver, named: "\(request.id)-reply", progress: nil)
      receiver.core.perform { core in
        // Else nobody waits for them any more.
        if core.peers[self.application.id]?.sent[request.id.id] != nil {
          core.peers[self.application.id]?.arrivedFiles[request.id.id] = files
        } else {
          receiver.removeFiles(files.map(\.path))
        }
      }
      return ReplyFiles(receiver: receiver, paths: files.map(\.path))
    } catch {
      core.perform { $0.peers[request.sender]?.incoming[request.id.id]?.isCopyingFiles = false }
      throw Self.servicesError(error)
    }
  }

  static let cannotReply = ServicesError(
    .general, detail: "the request is not there any more, or was replied to")

  /// Of a reply that was not sent.
  func removeFiles(_ files: ReplyFiles, of request: IncomingRequest) {
    files.receiver.core.perform { core in
      core.peers[self.application.id]?.arrivedFiles[request.id.id] = nil
    }
    files.receiver.removeFiles(files.paths)
  }

  // MARK: Copying

  /// The other app, if it runs here. What it says of its process is only a hint: files go to nobody but the app that the channel leads to.
  private func receiver(
    _ process: WireID?, of application: ApplicationID
  ) async throws -> Runtime {
    let authority = await core.result { $0.identity.authority }
    guard let process, let authority,
      let receiver = await LocalRuntimes.find(process, of: application, trusting: authority)
    else { throw ServicesError(.general, detail: "attachments between processes are not delivered yet") }
    return receiver
  }

  private func copy(
    _ paths: [String], to receiver: Runtime, named id: String, progress: Progress?
  ) async throws -> [ArrivedFile] {
    var options = Container.SendOptions()
    options.requestID = id
    let receipt = try await container.send(
      paths, to: receiver.container, sender: application.id.text, options: options, progress: progress)
    guard !receipt.wasDeliveredBefore else {
      throw ServicesError(.general, detail: "the files of this message were delivered before")
    }
    return receipt.files.map { ArrivedFile(path: $0.path, byteCount: $0.size) }
  }

  private static func servicesError(_ error: any Error) -> ServicesError {
    switch error {
    case let error as ServicesError: error
    case SecureFilesError.cancelled: ServicesError(.cancelled)
    case SecureFilesError.diskFull: ServicesError(.noSpace, detail: "the receiver's container")
    case SecureFilesError.fileDamaged: ServicesError(.sourceDamaged, detail: "\(error)")
    case SecureFilesError.noSuchFile: ServicesError(.attachmentNotFound, detail: "\(error)")
    default: ServicesError(.general, detail: "\(error)")
    }
  }

  /// Files of a message that was refused or withdrawn.
  func removeFiles(of sent: SentRequest) {
    guard let (receiver, paths) = sent.takeKept() else { return }
    receiver.core.perform { core in
      core.peers[self.application.id]?.arrivedFiles[sent.id.id] = nil
    }
    receiver.removeFiles(paths)
  }

  /// The message's directory in the inbox.
  func removeFiles(_ paths: [String]) {
    guard let directory = paths.first.map(Self.messageDirectory) else { return }
    workQueue.async { try? self.container.files.removeItem(atPath: directory) }
  }

  /// `/Inbox/<sender>/<time>` of a path below it.
  private static func messageDirectory(_ path: String) -> String {
    path.split(separator: "/").prefix(3).map { "/" + $0 }.joined()
  }
}

/// The runtimes of this process.
enum LocalRuntimes {
  private struct Weak: Sendable {
    weak let runtime: Runtime?
  }

  private static let all = Mutex<[WireID: Weak]>([:])

  static func add(_ runtime: Runtime) { all.withLock { $0[runtime.process] = Weak(runtime: runtime) } }
  static func remove(_ runtime: Runtime) { all.withLock { $0[runtime.process] = nil } }

  /// Nil unless it is this app, enrolled with the same broker.
  static func find(
    _ process: WireID, of application: ApplicationID, trusting authority: Data
  ) async -> Runtime? {
    guard let runtime = all.withLock({ $0[process]?.runtime }), runtime.application.id == application,
      await runtime.core.result(of: { $0.identity.authority }) == authority
    else { return nil }
    return runtime
  }
}
