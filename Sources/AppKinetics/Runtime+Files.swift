import ContainerStore
import Foundation
import SecureFiles
import ServiceValues
import ServiceWire
import Synchronization

/// Attachments between apps of one process: from container to container, before the message that they belong to is sent.
extension Runtime {
  /// Brings the files of a request into the receiver's inbox, and submits the request.
  func sendFiles(of sent: SentRequest) async throws {
    core.perform { core in
      core.peers[sent.application] = self.peer(sent.application, &core)
      self.withChannel(to: sent.application, &core) { result in
        switch result {
        case .failure(let error): sent.end(.refused, .failure(error), .didFail(error))
        case .success(let process):
          sent.accept()
          Task { await self.deliver(sent, to: process) }
        }
      }
    }
  }

  private func deliver(_ sent: SentRequest, to process: WireID) async {
    do {
      guard let receiver = LocalRuntimes.find(process) else {
        throw ServicesError(.general, detail: "attachments between processes are not delivered yet")
      }
      let wire = WireRequest.with {
        $0.serviceID = sent.request.service.text
        $0.version = sent.request.version.text
        $0.method = sent.request.method
      }
      // Nothing is copied for a request that would be refused.
      try receiver.core.performAndWait { core in
        Result { () throws(ServicesError) in _ = try receiver.offered(wire, from: self.application.id, core) }
      }.get()
      for path in sent.request.attachments { sent.tell(.didStartSending(attachment: path)) }
      let files = try await copy(
        sent.request.attachments, to: receiver, named: sent.id.description, progress: sent.progress)
      sent.keep(files.map(\.path), of: receiver)
      receiver.core.perform { core in
        core.peers[self.application.id] = receiver.peer(self.application.id, &core)
        core.peers[self.application.id]?.arrivedFiles[sent.id.id] = files
      }
      core.perform { self.submit(sent, attachmentCount: files.count, &$0) }
    } catch let error as ServicesError {
      sent.end(error.code == .cancelled ? .cancelled : .refused, .failure(error), .didFail(error))
    } catch {
      let error = Self.servicesError(error)
      sent.end(error.code == .cancelled ? .cancelled : .refused, .failure(error), .didFail(error))
    }
  }

  /// Brings a reply's files into the consumer's inbox. Returns how many there are.
  func sendFiles(_ paths: [String], replyingTo request: IncomingRequest) async throws -> Int {
    let process: WireID? = core.performAndWait { $0.peers[request.sender]?.process }
    guard let process, let receiver = LocalRuntimes.find(process) else {
      throw ServicesError(.general, detail: "attachments between processes are not delivered yet")
    }
    let provider: (any ServiceProvider)? = core.performAndWait { core in
      guard case .object(let provider) = core.peers[request.sender]?.incoming[request.id.id]?.offer.handler
      else {
        return nil
      }
      return provider
    }
    if let provider {
      callbackQueue.async {
        for path in paths { provider.didStartSending(attachment: path, for: request) }
      }
    }
    do {
      let files = try await copy(paths, to: receiver, named: "\(request.id)-reply", progress: nil)
      receiver.core.perform { core in
        core.peers[self.application.id]?.arrivedFiles[request.id.id] = files
      }
      return files.count
    } catch {
      throw Self.servicesError(error)
    }
  }

  private func copy(
    _ paths: [String], to receiver: Runtime, named id: String, progress: Progress?
  ) async throws -> [ArrivedFile] {
    var options = Container.SendOptions()
    options.requestID = id
    let receipt = try await container.send(
      paths, to: receiver.container, sender: application.id.text, options: options, progress: progress)
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
  static func find(_ process: WireID) -> Runtime? { all.withLock { $0[process]?.runtime } }
}
