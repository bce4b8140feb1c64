/// What a consumer asks.
public struct ServiceRequest: ServiceMessage {
  /// The service that is called.
  public var service: ServiceIdentifier
  /// The version of the service, which the provider must offer exactly.
  public var version: ServiceVersion
  /// The name of the method, which has 1 to 255 bytes of UTF-8.
  public var method: String
  /// Nil: none.
  public var params: ServiceValue?
  /// Files and folders of the sender's container, absolute paths.
  public var attachments: [String]
  /// The app that should be in front after the request was accepted.
  public var foreground: ForegroundPreference
  /// How long a request with attachments may wait for its receiver, from ``AppServices/send(_:to:)`` on and by the wall clock, also over restarts; then
  /// it is taken back, as ``AppServices/cancelRequest(_:to:)`` does. Nil: until it is delivered. It says nothing of a request without attachments.
  public var timeLimit: Duration?
  /// Params and attachments are checked against it before anything is sent; nil: they are not.
  public var definition: ServiceDefinition?

  /// Makes a request. It is checked against a definition only if one is given.
  public init(
    service: ServiceIdentifier, version: ServiceVersion, method: String, params: ServiceValue? = nil,
    attachments: [String] = [], foreground: ForegroundPreference = .none, timeLimit: Duration? = nil,
    definition: ServiceDefinition? = nil
  ) {
    self.service = service
    self.version = version
    self.method = method
    self.params = params
    self.attachments = attachments
    self.foreground = foreground
    self.timeLimit = timeLimit
    self.definition = definition
  }

  /// A request that is checked against its definition.
  public init(
    _ definition: ServiceDefinition, _ method: String, params: ServiceValue? = nil,
    attachments: [String] = [], foreground: ForegroundPreference = .none, timeLimit: Duration? = nil
  ) {
    self.init(
      service: definition.serviceID, version: definition.version, method: method, params: params,
      attachments: attachments, foreground: foreground, timeLimit: timeLimit, definition: definition)
  }
}

/// What a provider answered.
public struct ServiceReply: ServiceMessage, Hashable {
  /// The app that replied.
  public var sender: ApplicationID
  /// The params of the reply; nil: it has none.
  public var params: ServiceValue?
  /// Paths in the inbox of the consumer's container.
  public var attachments: [String]

  /// Makes a reply, for tests of an app's own code.
  public init(sender: ApplicationID, params: ServiceValue? = nil, attachments: [String] = []) {
    self.sender = sender
    self.params = params
    self.attachments = attachments
  }
}

/// What a handler answers.
public struct ServiceResponse: Sendable {
  enum Kind: Sendable {
    case reply(params: ServiceValue?, attachments: [String], foreground: ForegroundPreference)
    case later
    case none
  }

  let kind: Kind

  /// `attachments` are paths in the provider's container.
  public static func reply(
    _ params: ServiceValue? = nil, attachments: [String] = [], foreground: ForegroundPreference = .none
  ) -> ServiceResponse {
    ServiceResponse(kind: .reply(params: params, attachments: attachments, foreground: foreground))
  }

  /// The app replies at any later time, also in another process: the request is kept as by ``IncomingRequest/keep()``.
  public static var later: ServiceResponse { ServiceResponse(kind: .later) }

  /// The consumer hears that there will be no reply.
  public static var noReply: ServiceResponse { ServiceResponse(kind: .none) }
}

/// What happens to a reply, as its sender sees it.
public enum ReplyEvent: Sendable, Hashable {
  /// An attachment is about to be copied; told for each file before its first byte.
  case didStartSending(attachment: String)
  /// The consumer has its own copy of the reply and of its files, whose originals may change now.
  case didFinishSending
  /// The consumer does not get the reply: it went away, did not ask for it in time, or refused it.
  case didFail(ServicesError)
}

/// What happens to a request, as its sender sees it.
public enum RequestEvent: Sendable, Hashable {
  /// An attachment is about to be copied; told for each file before its first byte.
  case didStartSending(attachment: String)
  /// The receiver has its own copy of everything.
  case didFinishSending
  /// The reply brings files.
  case willReceiveAttachments(count: Int)
  /// At this place, when the reply is there.
  case willReceive(attachment: String, byteCount: UInt64)
  /// The reply is there with all of its files.
  case didReceive(ServiceReply)
  /// The provider's app answered with an error.
  case didReceiveError(ServiceReplyError)
  /// The provider will not reply.
  case didEndWithoutReply
  /// It was refused, cancelled or lost; nothing follows.
  case didFail(ServicesError)
}
