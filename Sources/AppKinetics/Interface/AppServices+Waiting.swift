import SecureFiles

/// The same for code that is not asynchronous, such as a program's main thread or a thread of its own. Each call blocks its thread until it is done;
/// a queue of callbacks must not wait for what is called on that queue. From asynchronous code they cannot be called.
extension AppServices {
  /// ``start()``, waiting.
  @available(*, noasync, message: "await start()")
  public func startAndWait() throws { try BlockingCall.wait { try await self.start() } }

  /// ``stop()``, waiting.
  @available(*, noasync, message: "await stop()")
  public func stopAndWait() { try? BlockingCall.wait { await self.stop() } }

  /// ``send(_:to:)``, waiting until the request was taken.
  @available(*, noasync, message: "await send(_:to:)")
  public func sendAndWait(_ request: ServiceRequest, to application: ApplicationID) throws -> SentRequest {
    try BlockingCall.wait { try await self.send(request, to: application) }
  }

  /// ``call(_:to:)``, waiting for the reply.
  @available(*, noasync, message: "await call(_:to:)")
  @discardableResult
  public func callAndWait(
    _ request: ServiceRequest, to application: ApplicationID
  ) throws -> ServiceReply? {
    try BlockingCall.wait { try await self.call(request, to: application) }
  }

  /// ``providers(of:version:type:includesOwn:includesContents:includesNonProviders:)``, waiting.
  @available(*, noasync, message: "await providers(of:)")
  public func providersAndWait(
    of service: ServiceIdentifier? = nil, version: ServiceVersion? = nil, type: ServiceType? = nil,
    includesOwn: Bool = false, includesContents: Bool = false, includesNonProviders: Bool = false
  ) throws -> [Provider] {
    try BlockingCall.wait {
      try await self.providers(
        of: service, version: version, type: type, includesOwn: includesOwn,
        includesContents: includesContents, includesNonProviders: includesNonProviders)
    }
  }

  /// ``launch(_:)``, waiting.
  @available(*, noasync, message: "await launch(_:)")
  public func launchAndWait(_ application: ApplicationID) throws {
    try BlockingCall.wait { try await self.launch(application) }
  }

  /// ``bringToFront(_:)``, waiting.
  @available(*, noasync, message: "await bringToFront(_:)")
  public func bringToFrontAndWait(_ application: ApplicationID) throws {
    try BlockingCall.wait { try await self.bringToFront(application) }
  }
}
