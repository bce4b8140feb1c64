/// Service definitions, as Documentation/SERVICE-DEFINITIONS.md describes them.
extension JSONNode {
  func service() throws(Problem) -> ServiceDefinition {
    let id = try requiredMember("service-id")
    let version = try requiredMember("version")
    let idText = try id.string()
    let versionText = try version.string()
    let serviceID: ServiceIdentifier
    let serviceVersion: ServiceVersion
    do { serviceID = try ServiceIdentifier(idText) } catch { throw id.problem(error.detail ?? "it is no id") }
    do { serviceVersion = try ServiceVersion(versionText) } catch {
      throw version.problem(error.detail ?? "it is no version")
    }
    var methods: [String: ServiceDefinition.Method] = [:]
    for (name, node) in try requiredMember("methods").members() {
      if name.isEmpty { throw node.problem("a method needs a name") }
      methods[name] = try node.method()
    }
    return ServiceDefinition(
      serviceID: serviceID, version: serviceVersion, title: try text("title"),
      description: try text("description"), creator: try member("creator_information")?.creator(),
      methods: methods)
  }

  func creator() throws(Problem) -> ServiceDefinition.Creator {
    ServiceDefinition.Creator(
      name: try text("name"), apiURL: try text("api_url"), copyright: try text("copyright"),
      contactDetails: try text("contact_details"))
  }

  func method() throws(Problem) -> ServiceDefinition.Method {
    let method = ServiceDefinition.Method(
      description: try text("description"), params: try member("params")?.parameter(),
      attachments: try member("attachments")?.attachments(),
      resultValue: try member("result-value")?.parameter(),
      resultAttachments: try member("result-attachments")?.attachments(), errors: try errors())
    if method.resultValue == nil && method.resultAttachments != nil {
      throw Problem(
        path: path.appending(.key("result-value")), detail: "missing, and required beside result-attachments")
    }
    return method
  }

  private func errors() throws(Problem) -> [ServiceDefinition.ErrorDefinition] {
    var errors: [ServiceDefinition.ErrorDefinition] = []
    var codes: Set<Int64> = []
    for node in try member("errors")?.elements() ?? [] {
      let code = try node.requiredMember("code")
      let error = ServiceDefinition.ErrorDefinition(
        code: try code.integer(), title: try node.text("title"), description: try node.text("description"),
        data: try node.member("data")?.errorData(),
        attachments: try node.member("attachments")?.attachments())
      if ServiceReplyError.runtimeCodes.contains(error.code) {
        throw code.problem("\(error.code) is kept for errors of the runtime")
      }
      if !codes.insert(error.code).inserted {
        throw code.problem("a second error with code \(error.code)")
      }
      errors.append(error)
    }
    return errors
  }

  private func errorData() throws(Problem) -> ParameterDefinition {
    let data = try parameter()
    if case .kind(let kind) = data.type, kind != .object {
      throw Problem(path: path.appending(.key("type")), detail: "the data of an error is an object")
    }
    return data
  }

  func parameter() throws(Problem) -> ParameterDefinition {
    var properties: [String: ParameterDefinition] = [:]
    for (name, node) in try member("properties")?.members() ?? [] { properties[name] = try node.parameter() }
    return ParameterDefinition(
      type: try text("type").map { ParameterDefinition.ValueType(name: $0) },
      description: try text("description"), isRequired: try member("required")?.boolean() ?? false,
      items: try member("items")?.parameter(), properties: properties,
      allowedValues: try member("enum")?.allowedValues())
  }

  private func allowedValues() throws(Problem) -> [ServiceValue] {
    var values: [ServiceValue] = []
    for node in try elements() {
      var path = node.path
      values.append(try node.value.unmarked(at: &path))
    }
    if values.isEmpty { throw problem("no value is allowed") }
    return values
  }

  func attachments() throws(Problem) -> AttachmentsDefinition {
    let attachments = AttachmentsDefinition(
      items: try member("items")?.items(), additionalItems: try member("additionalItems")?.items(),
      minItems: try member("minItems")?.count(), maxItems: try member("maxItems")?.count())
    if let most = attachments.countMax, most < attachments.countMin {
      throw problem("at least \(attachments.countMin) and at most \(most) cannot both be")
    }
    return attachments
  }

  private func items() throws(Problem) -> AttachmentsDefinition.Items {
    guard value.kind == .array else { return .each(try item()) }
    var items: [AttachmentsDefinition.Item] = []
    for node in try elements() { items.append(try node.item()) }
    return .inOrder(items)
  }

  private func item() throws(Problem) -> AttachmentsDefinition.Item {
    AttachmentsDefinition.Item(
      title: try text("title"), description: try text("description"), format: try text("format"))
  }
}
