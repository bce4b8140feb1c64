import AppKinetics

extension HostedApp {
  /// Returns at once, and throws nothing: code calls it with `try!`, and its owner may have locked the app.
  func bringToFront(_ application: String, _ call: String, _ completion: @escaping (Bool) -> Void) {
    let services = Result { try opened(call).services }
    let completion = Completion(call: completion)
    let queue = configuration.callbackQueue
    Task.detached { [logger = configuration.logger] in
      do {
        try await services.get().launch(ServiceMessages.application(application))
        queue.async { completion.call(true) }
      } catch {
        logger.notice("an app is not in front", metadata: ["error": "\(error)"])
        queue.async { completion.call(false) }
      }
    }
  }

  /// Blocks until the other app is in front. Throws `NSError`.
  func bringToFront(_ application: String, _ call: String) throws {
    do {
      try opened(call).services.launchAndWait(ServiceMessages.application(application))
    } catch {
      throw VendorError.of(error)
    }
  }
}

/// The vendor's type of the closure is not sendable.
private struct Completion: @unchecked Sendable {
  // Invariant: it is called once, on the queue of callbacks.
  let call: (Bool) -> Void
}
