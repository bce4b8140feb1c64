extension ServiceDefinition {
  /// The longest definition that a broker takes, in bytes of JSON.
  public static let byteCountMax = 65_536

  /// Reads the JSON of a definition. Members that the language does not have are passed over and not kept.
  ///
  /// Throws `invalidRegistration` with the line and column where the text is no JSON, or the path of what is missing, of a wrong type
  /// or contradicts something else.
  public init(jsonText text: String, byteCountMax: Int = Self.byteCountMax) throws(ServicesError) {
    try self.init(json: Array(text.utf8), byteCountMax: byteCountMax)
  }

  /// Reads a definition from UTF-8 bytes. Throws as ``init(jsonText:byteCountMax:)`` does.
  public init(json: [UInt8], byteCountMax: Int = Self.byteCountMax) throws(ServicesError) {
    let root = "definition"
    do throws(Problem) {
      if json.count > byteCountMax {
        throw Problem(path: ServicePath(root), detail: "more than \(byteCountMax) bytes")
      }
      self = try JSONNode(json: json, root: root).service()
    } catch {
      throw error.error(.invalidRegistration)
    }
  }
}
