/// A request, a reply or a message in the outbox: params, and the paths of files.
public protocol ServiceMessage: Sendable {
  /// The params; nil: there are none.
  var params: ServiceValue? { get }
  /// The paths of the files, which the type explains.
  var attachments: [String] { get }
}

extension ServiceMessage {
  /// The params as a value of the app's own type. Throws `invalidParams` with the path of what does not fit, also when there are none.
  public func decodeParams<T: Decodable>(as type: T.Type = T.self) throws -> T {
    try (params ?? .null).decode(as: type)
  }
}
