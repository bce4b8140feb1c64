/// What a service offers: its methods, what they take, and what they answer. Source: Documentation/SERVICE-DEFINITIONS.md.
///
/// A definition is read with ``init(jsonText:byteCountMax:)`` and written with ``jsonText``; titles and descriptions are for people.
public struct ServiceDefinition: Sendable, Hashable {
  /// The service that is defined.
  public var serviceID: ServiceIdentifier
  /// The version of the service that is defined.
  public var version: ServiceVersion
  /// The name of the service, for people.
  public var title: String?
  /// What the service does, in words for people.
  public var description: String?
  /// The authors of the service, for people.
  public var creator: Creator?
  /// The methods by their names. A name that is read from JSON is never empty.
  public var methods: [String: Method]

  /// Makes a definition in Swift. Nothing is checked beyond the types.
  public init(
    serviceID: ServiceIdentifier, version: ServiceVersion, title: String? = nil, description: String? = nil,
    creator: Creator? = nil, methods: [String: Method]
  ) {
    self.serviceID = serviceID
    self.version = version
    self.title = title
    self.description = description
    self.creator = creator
    self.methods = methods
  }

  /// What one method takes and what it answers.
  public struct Method: Sendable, Hashable {
    /// What the method does, in words for people.
    public var description: String?
    /// The params that the method takes; nil: none.
    public var params: ParameterDefinition?
    /// The attachments that the method takes; nil: none.
    public var attachments: AttachmentsDefinition?
    /// The params of the reply; nil: no reply is defined.
    public var resultValue: ParameterDefinition?
    /// The attachments of the reply; nil: none.
    public var resultAttachments: AttachmentsDefinition?
    /// The errors that the app itself replies with. Empty: the definition says nothing about them.
    public var errors: [ErrorDefinition]

    /// Describes a method. Without arguments it takes nothing and has no reply.
    public init(
      description: String? = nil, params: ParameterDefinition? = nil,
      attachments: AttachmentsDefinition? = nil, resultValue: ParameterDefinition? = nil,
      resultAttachments: AttachmentsDefinition? = nil, errors: [ErrorDefinition] = []
    ) {
      self.description = description
      self.params = params
      self.attachments = attachments
      self.resultValue = resultValue
      self.resultAttachments = resultAttachments
      self.errors = errors
    }

    /// Whether a consumer may wait for an answer: a value, or one of the errors.
    public var definesReply: Bool { resultValue != nil || !errors.isEmpty }
  }

  /// An error that a provider's app may reply with.
  public struct ErrorDefinition: Sendable, Hashable {
    /// The number of the error, which is unique within its method.
    public var code: Int64
    /// The name of the error, for people.
    public var title: String?
    /// What the error means, in words for people.
    public var description: String?
    /// The details of the error; nil: none.
    public var data: ParameterDefinition?
    /// The attachments of the error; nil: none.
    public var attachments: AttachmentsDefinition?

    /// Describes an error. Without further arguments it has neither details nor attachments.
    public init(
      code: Int64, title: String? = nil, description: String? = nil, data: ParameterDefinition? = nil,
      attachments: AttachmentsDefinition? = nil
    ) {
      self.code = code
      self.title = title
      self.description = description
      self.data = data
      self.attachments = attachments
    }
  }

  /// The author of a service, for people.
  public struct Creator: Sendable, Hashable {
    /// The name of the author or the organisation.
    public var name: String?
    /// The address of the documentation, as text; it is not checked.
    public var apiURL: String?
    /// The copyright notice.
    public var copyright: String?
    /// How to reach the author, as free text.
    public var contactDetails: String?

    /// Describes an author. Every part may be missing.
    public init(
      name: String? = nil, apiURL: String? = nil, copyright: String? = nil, contactDetails: String? = nil
    ) {
      self.name = name
      self.apiURL = apiURL
      self.copyright = copyright
      self.contactDetails = contactDetails
    }
  }

  /// The method of that name. Throws `methodNotFound` when there is none.
  public func method(_ name: String) throws(ServicesError) -> Method {
    guard let method = methods[name] else {
      throw ServicesError(.methodNotFound, path: ServicePath(serviceID.text).appending(.key(name)).text)
    }
    return method
  }

  /// Whether an answer to the method is defined: false means that a consumer must not wait for one. Throws `methodNotFound`.
  public func definesReply(_ method: String) throws(ServicesError) -> Bool {
    try self.method(method).definesReply
  }

  /// The codes of the errors that the method may answer with, in the definition's order. Throws `methodNotFound`.
  public func errorCodes(_ method: String) throws(ServicesError) -> [Int64] {
    try self.method(method).errors.map(\.code)
  }
}
