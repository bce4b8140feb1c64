import AppKinetics
import ContainerStore
package import Foundation
import Locks
package import SecureFiles
import SodiumPrimitives

/// What an owner decides.
extension AppRuntime {
  /// Reads the management file, and does what a newer one says. The runtime does this by itself: when it begins, before each
  /// authorization, and when the file changes. Throws `managementRefused`; then the accepted file still holds.
  ///
  /// Blocks for the time of a small read.
  public func readManagement() throws(AppRuntimeError) {
    guard let source = options.management else { return }
    do throws(AppRuntimeError) {
      effects.async { [self] in finishWipe() }
      guard let text = try source.read(), text != state.withLock({ $0.accepted?.text }) else { return }
      try accept(ManagementFile(text))
    } catch {
      options.logger.error("the management file was refused", metadata: ["error": "\(error)"])
      throw error
    }
  }

  /// A refusal was logged.
  func refreshManagement() async { try? await BlockingCall.run { try self.readManagement() } }

  private func accept(_ management: ManagementFile) throws(AppRuntimeError) {
    let entitlement = management.entitlement(of: application)
    var isNew = false
    try change { state throws(AppRuntimeError) in
      let before = state.accepted
      isNew = try state.kept.accept(management, after: before)
      guard isNew else { return [] }
      state.accepted = management
      state.heldUpdates += management.updates(since: before).filter { !state.heldUpdates.contains($0) }
      let isLocked = state.authorization.isRemotelyLocked
      var inputs = [Authorization.Input.managed(block: management.block, entitlement: entitlement)]
      if isLocked != (state.kept.remoteLock != nil) {
        inputs.append(isLocked ? .unlockCodeAccepted : .remotelyLocked)
      }
      if let id = management.wipe, id == state.kept.container {
        state.kept.noteWiped()
        state.kept.wiping = id
        inputs.append(.wiped)
      }
      return inputs
    }
    guard isNew else { return }
    options.logger.notice("a management file was accepted", metadata: ["serial": "\(management.serial)"])
    // Behind the state: a container that knows more than the state would ask for the unlock code.
    effects.async { [self] in
      do {
        try noteSerial()
      } catch {
        options.logger.notice(
          "the container does not know its owner's decision", metadata: ["error": "\(error)"])
      }
    }
  }

  /// In the open container: that it was managed, and since which serial. A state that is older was put back.
  private func noteSerial() throws {
    let (opened, accepted) = state.withLock { ($0.opened, $0.accepted) }
    guard let opened, let accepted, saved.withLock({ $0?.managed == accepted.text }) else { return }
    // Before anybody can read it there.
    state.withLock { $0.provenSerial = max($0.provenSerial, accepted.serial) }
    try Self.write(accepted.serial, in: opened.container)
  }

  /// Whether the state beside a container has a management file that was accepted.
  package static func isManaged(containerAt url: URL) -> Bool {
    StateFile.peek(PosixBlockIO(url.path + ".runtime"))?.managed != nil
  }

  /// Refuses to go on with a container that was managed, without its runtime. Throws `stateUnusable`.
  package static func requireUnmanaged(_ container: SecureContainer) throws {
    guard try RuntimeFile.managed.text(in: container.store) != nil else { return }
    throw AppRuntimeError(
      .stateUnusable,
      detail: "the container was managed, and the state beside it is missing; give the management file")
  }

  private static func write(_ serial: Int64, in container: SecureContainer) throws {
    try RuntimeFile.managed.write("\(serial)\n", in: container.store)
    FailPoint.noted.pass()
  }

  /// Locks the app remotely when the container knows a later decision than the state that this process began with: the state was
  /// removed or put back, and with it perhaps a lock. Throws `notAuthorized` then.
  func requireKnownSerial(_ container: SecureContainer) async throws {
    let (accepted, proven) = state.withLock { ($0.accepted?.serial ?? 0, $0.provenSerial) }
    let known = try await BlockingCall.run { () -> Int64 in
      // The container never knows more than the state on the disk.
      try self.keep { _ in }
      guard let text = try RuntimeFile.managed.text(in: container.store) else { return 0 }
      // What is damaged there is no reason to forget that there was something.
      return Int64(text.dropLast()) ?? .max
    }
    guard known <= proven else {
      options.logger.error(
        "the state beside the container was removed or put back", metadata: ["serial": "\(known)"])
      change { state in
        state.kept.remoteLock = state.kept.remoteLock ?? .stateLost
        return [.remotelyLocked]
      }
      throw AppRuntimeError(.notAuthorized, withdrawal: .remoteLock)
    }
    guard known < accepted else { return }
    state.withLock { $0.provenSerial = max($0.provenSerial, accepted) }
    try await BlockingCall.run { try Self.write(accepted, in: container) }
  }

  // MARK: Wiping

  /// Destroys a container whose keys are gone, after the state that says so was saved: the next process finishes what is interrupted.
  func finishWipe() {
    guard let id = state.withLock({ $0.isAbandoned ? nil : $0.kept.wiping }) else { return }
    do {
      FailPoint.wiping.pass()
      try Self.destroy(id, at: url.path)
      FailPoint.destroyed.pass()
      state.withLock { $0.kept.wiping = nil }
      try write()
    } catch {
      options.logger.error("the container cannot be destroyed yet", metadata: ["error": "\(error)"])
    }
  }

  /// Does nothing for a container that is gone, or is another one.
  static func destroy(_ id: Identifier, at path: String) throws {
    do {
      try Container.destroy(at: path, id: id)
    } catch let error as ContainerError where [.notAContainer, .invalidArgument].contains(error.code) {}
  }
}

extension ManagementFile {
  func entitlement(of application: Application) -> Authorization.Entitlement {
    entitlement(application.entitlementID, application.entitlementVersion)
  }

  /// The events of what is different from an earlier file.
  func updates(since before: ManagementFile?) -> [AuthorizationEvent.Kind] {
    var updates: [AuthorizationEvent.Kind] = []
    if configuration != before?.configuration ?? AppConfiguration() { updates.append(.settingsUpdate) }
    if appPolicy != before?.appPolicy { updates.append(.policyUpdate) }
    if entitlements != before?.entitlements { updates.append(.entitlementsUpdate) }
    return updates
  }
}
