import AppKinetics
import SecureFiles

/// Updates of what other apps offer.
extension AppRuntime {
  /// Tells the app of each change of the providers, until these services stop. Whether a provider runs, or is in front, is none.
  func followProviders(_ services: AppServices) {
    Task { [weak self] in
      guard let lists = try? await BlockingCall.run({ services.watchProviders(includesContents: true) })
      else { return }
      // The first list is an update, too, unless it is empty: the app may have asked before it came.
      var last: [Provider] = []
      do {
        for try await list in lists {
          let offers = list.map(\.offer)
          if last != offers { self?.tell(.servicesUpdate) }
          last = offers
        }
      } catch {
        // The services have stopped.
      }
    }
  }

  /// Tells it when the app is authorized, once.
  private func tell(_ update: AuthorizationEvent.Kind) {
    change { state in
      if !state.heldUpdates.contains(update) { state.heldUpdates.append(update) }
      return []
    }
  }
}

extension Provider {
  /// Without what changes while it runs.
  fileprivate var offer: Provider {
    var offer = self
    (offer.state, offer.isInFront) = (.hidden, false)
    return offer
  }
}
