public import ServiceValues

/// What an owner configured for an app. The runtime passes it on, and enforces nothing of it.
public struct AppConfiguration: Sendable, Hashable {
  /// The servers behind the app, in any order; `AppServer.attemptOrder` has the order in which to try them.
  public var servers: [AppServer] = []
  /// Text of the owner's.
  public var config: String?
  /// Text of the owner's, usually JSON.
  public var extraInfo: String?
  /// The user that the app is activated for.
  public var userID: String?
  /// The user's principal name.
  public var userPrincipalName: String?
  /// The protocols that the app may use, as `TLSv1_2`.
  public var communicationProtocols: [String: Bool]?
  /// What the app has to prevent or to allow; a flag that is missing was not configured.
  public var flags: [Flag: Bool] = [:]

  /// Rules that an app applies by itself.
  public enum Flag: String, Sendable, Hashable, CaseIterable {
    case preventDataLeakageOut, preventDataLeakageIn, preventDictation, preventCustomKeyboards
    case preventScreenRecording, allowWearable, allowWritingTools, detailedLogs, preventUserDetailedLogs
  }

  /// Nothing is configured.
  public init() {}

  init(_ node: JSONNode) throws(Problem) {
    let texts: Set = ["config", "extraInfo", "userID", "userPrincipalName"]
    try node.requireMembers(
      among: texts.union(["servers", "communicationProtocols"]).union(Flag.allCases.map(\.rawValue)))
    config = try node.text("config")
    extraInfo = try node.text("extraInfo")
    userID = try node.text("userID")
    userPrincipalName = try node.text("userPrincipalName")
    for flag in Flag.allCases {
      if let value = try node.member(flag.rawValue) { flags[flag] = try value.boolean() }
    }
    if let protocols = try node.member("communicationProtocols") {
      var allowed: [String: Bool] = [:]
      for (name, value) in try protocols.members() { allowed[name] = try value.boolean() }
      communicationProtocols = allowed
    }
    if let list = try node.member("servers") {
      let elements = try list.elements()
      guard elements.count <= AppServer.countMax else {
        throw list.problem("there are \(elements.count), and \(AppServer.countMax) are allowed")
      }
      for element in elements { servers.append(try Self.server(element)) }
    }
  }

  private static func server(_ node: JSONNode) throws(Problem) -> AppServer {
    try node.requireMembers(among: ["host", "port", "priority"])
    let host = try node.requiredMember("host").string()
    let port = try node.requiredMember("port").count()
    let priority = try node.member("priority")?.count() ?? 1
    do throws(ServicesError) {
      return try AppServer(host: host, port: port, priority: priority)
    } catch {
      throw node.problem(error.detail ?? "it is no server")
    }
  }
}
