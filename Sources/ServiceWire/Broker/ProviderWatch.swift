import Foundation

/// A watch of a client: what the client knows of providers, and what may be new to it.
struct ProviderWatch: Sendable {
  private let filter: WireFind
  /// The last app id of the first list so far; nil once that is complete.
  private var listedTo: String? = ""
  /// What the watcher knows, as the hash of each provider.
  private(set) var known: [String: Int] = [:]
  /// Apps of which something may be new to the watcher.
  private(set) var dirty: Set<String> = []
  private var isAllDirty = false

  init(filter: WireFind) { self.filter = filter }

  var hasMore: Bool { listedTo != nil || isAllDirty || !dirty.isEmpty }

  /// Whether a change of the app may be news; nil means all apps.
  func concerns(_ appID: String?) -> Bool {
    guard let appID else { return true }
    return !filter.hasAppID || filter.appID == appID
  }

  /// Something about an app has changed; nil means all apps.
  mutating func noteChange(of appID: String?, appCountMax: Int) {
    guard let appID else {
      isAllDirty = true
      return
    }
    // More than there can be: checking all finds those that are gone, too.
    if dirty.count > appCountMax {
      dirty = []
      isAllDirty = true
    } else if !isAllDirty {
      dirty.insert(appID)
    }
  }

  /// The next page of the list, or of what is new; nil when nothing is new after all.
  mutating func advance(
    _ number: UInt64, _ directory: AppDirectory, _ asker: BrokerAsker
  ) -> WireBrokerMessage? {
    if let listedTo { return list(number, directory, asker, listedTo) }
    if isAllDirty {
      isAllDirty = false
      dirty = Set(known.keys).union(directory.records.apps.keys)
    }
    var changed = WireProvidersChanged.with { $0.watch = number }
    var byteCount = 0
    for appID in dirty.sorted() {
      let provider = directory.provider(appID, for: filter, asker: asker)
      let hash = provider?.encodedHash
      if hash != known[appID] {
        if byteCount > 0, byteCount + (provider?.byteCount ?? 0) > directory.pageByteCount { break }
        byteCount += provider?.byteCount ?? appID.utf8.count
        known[appID] = hash
        if let provider { changed.present.append(provider) } else { changed.gone.append(appID) }
      }
      dirty.remove(appID)
    }
    guard !changed.present.isEmpty || !changed.gone.isEmpty else { return nil }
    return .with { $0.providersChanged = changed }
  }

  private mutating func list(
    _ number: UInt64, _ directory: AppDirectory, _ asker: BrokerAsker, _ listedTo: String
  ) -> WireBrokerMessage {
    let page = directory.providers(after: listedTo, for: filter, asker: asker)
    for provider in page.elements { known[provider.appID] = provider.encodedHash }
    self.listedTo = page.hasMore ? page.last : nil
    return .answer(number) {
      $0.providers.providers = page.elements
      $0.providers.more = page.hasMore
    }
  }
}

extension WireProvider {
  /// Hash of the encoded bytes: hashes of texts would normalise names that apps chose.
  fileprivate var encodedHash: Int {
    var hasher = Hasher()
    // `Data` itself hashes no more than its beginning.
    (try? serializedBytes() as [UInt8])?.withUnsafeBytes { hasher.combine(bytes: $0) }
    return hasher.finalize()
  }
}
