extension ServiceDefinition {
  /// The definition in canonical JSON: equal definitions have the same text. What is nil, empty or the default is left out.
  ///
  /// Numbers among the values of an `enum` must be finite.
  public var jsonText: String { JSONWriter.text(of: json) }

  private var json: ServiceValue {
    object([
      "service-id": .string(serviceID.text),
      "version": .string(version.text),
      "title": title.map { .string($0) },
      "description": description.map { .string($0) },
      "creator_information": creator?.json,
      "methods": .object(methods.mapValues(\.json)),
    ])
  }
}

/// Without the members that are nil.
private func object(_ members: [String: ServiceValue?]) -> ServiceValue {
  .object(members.compactMapValues(\.self))
}

extension ServiceDefinition.Creator {
  fileprivate var json: ServiceValue {
    object([
      "name": name.map { .string($0) },
      "api_url": apiURL.map { .string($0) },
      "copyright": copyright.map { .string($0) },
      "contact_details": contactDetails.map { .string($0) },
    ])
  }
}

extension ServiceDefinition.Method {
  fileprivate var json: ServiceValue {
    object([
      "description": description.map { .string($0) },
      "params": params?.json,
      "attachments": attachments?.json,
      "result-value": resultValue?.json,
      "result-attachments": resultAttachments?.json,
      "errors": errors.isEmpty ? nil : .array(errors.map(\.json)),
    ])
  }
}

extension ServiceDefinition.ErrorDefinition {
  fileprivate var json: ServiceValue {
    object([
      "code": .integer(code),
      "title": title.map { .string($0) },
      "description": description.map { .string($0) },
      "data": data?.json,
      "attachments": attachments?.json,
    ])
  }
}

extension ParameterDefinition {
  fileprivate var json: ServiceValue {
    object([
      "type": type.map { .string($0.name) },
      "description": description.map { .string($0) },
      "required": isRequired ? true : nil,
      "items": items?.json,
      "properties": properties.isEmpty ? nil : .object(properties.mapValues(\.json)),
      "enum": allowedValues.map { .array($0.map(\.marked)) },
    ])
  }
}

extension AttachmentsDefinition {
  fileprivate var json: ServiceValue {
    object([
      "items": items?.json,
      "additionalItems": additionalItems?.json,
      "minItems": minItems.map { .integer(Int64($0)) },
      "maxItems": maxItems.map { .integer(Int64($0)) },
    ])
  }
}

extension AttachmentsDefinition.Items {
  fileprivate var json: ServiceValue {
    switch self {
    case .each(let item): item.json
    case .inOrder(let items): .array(items.map(\.json))
    }
  }
}

extension AttachmentsDefinition.Item {
  fileprivate var json: ServiceValue {
    object([
      "title": title.map { .string($0) },
      "description": description.map { .string($0) },
      "format": format.map { .string($0) },
    ])
  }
}
