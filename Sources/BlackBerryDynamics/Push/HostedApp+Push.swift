import AppRuntime
import PushClient
import SecureFiles

extension HostedApp {
  /// The key of the state of push, in the container: who has no container cannot read the state.
  private static let keyPath = "/Library/Application Support/.opendynamics/push.key"

  /// Push, which begins with the first call. Throws as ``opened(_:)`` does, and `PushError`.
  func push(_ call: String) throws -> PushRuntime {
    let opened = try opened(call)
    // One thing at a time: two calls must not make two.
    return try pushRuntime.withLock { push in
      if let push { return push }
      let made = try makePush(opened.container)
      push = made
      return made
    }
  }

  private func makePush(_ container: SecureContainer) throws -> PushRuntime {
    guard let runtime = state.withLock({ $0.runtime }) else { throw AppRuntimeError(.notAuthorized) }
    guard let relay = configuration.relay else { throw NoRelay() }
    let directory = URL(fileURLWithPath: configuration.container.path + ".push", isDirectory: true)
    var options = PushRuntime.Options(
      relay: relay, directory: directory, stateKey: try stateKey(in: container, directory))
    options.authorities = configuration.relayAuthorities
    options.admissionKey = configuration.relayAdmissionKey
    options.gate = RuntimeGate(runtime: runtime)
    options.staysConnected = true
    options.connectTime = configuration.pushConnectTime
    let push = try PushRuntime(options, logger: configuration.logger)
    Task.detached { [self] in
      for await _ in push.availability { GDReachability.shared.changed(self) }
    }
    return push
  }

  private func stateKey(in container: SecureContainer, _ directory: URL) throws -> Data {
    do { return try container.files.data(atPath: Self.keyPath) } catch SecureFilesError.noSuchFile {}
    // A state without its key is that of a container that is no more.
    try? FileManager.default.removeItem(at: directory)
    var generator = SystemRandomNumberGenerator()
    let key = Data((0..<32).map { _ in UInt8.random(in: .min ... .max, using: &generator) })
    try container.files.createDirectory(
      atPath: (Self.keyPath as NSString).deletingLastPathComponent, withIntermediateDirectories: true)
    try container.files.write(key, toPath: Self.keyPath)
    try container.synchronize()
    return key
  }
}

private struct NoRelay: Error, CustomStringConvertible {
  let description = "the app has no relay: set GDConfiguration.relay, or OPENDYNAMICS_RELAY"
}

/// Lets push connect while the app is authorized, and show something while it is shown.
private struct RuntimeGate: PushGate {
  weak var runtime: AppRuntime?

  init(runtime: AppRuntime) { self.runtime = runtime }

  func permissions() -> AsyncStream<PushPermission> {
    let (stream, continuation) = AsyncStream.makeStream(
      of: PushPermission.self, bufferingPolicy: .bufferingNewest(1))
    let task = Task { [weak runtime] in
      guard let changes = runtime?.authorizationChanges else { return continuation.finish() }
      for await state in changes {
        continuation.yield(
          PushPermission(mayConnect: state.isAuthorized, mayShow: state.presentation == .app))
      }
      continuation.finish()
    }
    continuation.onTermination = { _ in task.cancel() }
    return stream
  }
}
