import BlackBerryDynamics.AppKinetics
import BlackBerryDynamics.Runtime

/// Sends notes with a file to other apps.
class NoteSender: NSObject, GDServiceClientDelegate {
  /// The address of this app, which discovery finds, too.
  var ownAddress = Bundle.main.bundleIdentifier ?? "com.example.jotter"
  weak var app: JotterApp?
  private let client = GDServiceClient()
  /// Addresses of receivers by the ids of requests that have no reply yet.
  private var requests: [String: String] = [:]

  override init() {
    super.init()
    client.delegate = self
  }

  func isAwaiting(_ application: String) -> Bool { return requests.values.contains(application) }

  /// Sends a note with a file of the store. Returns false while no such app takes notes.
  func send(_ text: String, _ path: String, to receiver: String) throws -> Bool {
    let providers = GDiOS.sharedInstance().getServiceProviders(
      for: AppendNote.service, andVersion: AppendNote.version, andServiceType: .application)
    let found = providers.first {
      $0.address != ownAddress && ($0.address == receiver || $0.name == receiver)
    }
    guard let address = found?.address else { return false }
    var requestID: NSString?
    try GDServiceClient.send(
      to: address, withService: AppendNote.service, withVersion: AppendNote.version,
      withMethod: AppendNote.method, withParams: ["text": text], withAttachments: [path],
      bringServiceToFront: .GDEPreferMeInForeground, requestID: &requestID)
    if let requestID = requestID { requests[requestID as String] = address }
    return true
  }

  /// Takes back what no receiver has yet. Returns how many notes that were.
  func cancel() -> Int {
    let cancelled = requests.filter { GDServiceClient.cancelRequest($0.key, toApplication: $0.value) }
    for requestID in cancelled.keys { requests[requestID] = nil }
    return cancelled.count
  }

  func gdServiceClientDidStartSending(
    to application: String, withFilename filename: String, correspondingToRequestID requestID: String
  ) {
    app?.screen?.show("sending \((filename as NSString).lastPathComponent)")
  }

  func gdServiceClientDidFinishSending(
    to application: String, withAttachments attachments: [String], withParams params: Any,
    correspondingToRequestID requestID: String
  ) {
    app?.screen?.show("\(application) has the note")
  }

  func gdServiceClientDidReceive(
    from application: String, withParams params: Any, withAttachments attachments: [String],
    correspondingToRequestID requestID: String
  ) {
    requests[requestID] = nil
    app?.store.discard(attachments)
    if let error = params as? NSError {
      app?.screen?.showError("\(application): \(explanation(of: error))")
      app?.finish(ExitCode.refused)
    } else {
      let count = (params as? [String: Any])?["count"] as? Int
      app?.screen?.show("\(application) keeps " + (count.map { "\($0) notes" } ?? "the note"))
      app?.finish(ExitCode.done)
    }
  }

  func explanation(of error: NSError) -> String {
    // The error of an app has the service's id as its domain.
    guard error.domain == GDServicesErrorDomain else {
      return "\(error.localizedDescription) (\(error.code))"
    }
    switch error.code {
    case GDServicesErrorApplicationNotFound: return "the app does not run"
    case GDServicesErrorNotAllowed: return "the app was not unlocked"
    case GDServicesErrorProcessSuspended: return "the app is suspended"
    default: return error.localizedDescription
    }
  }
}
