extension ServiceDefinition {
  /// Checks a request against the definition of its method. The rules for all values are another check: ``ServiceValue/validate(limits:root:)``.
  ///
  /// Throws `methodNotFound`, or `invalidParams` with the path of what is wrong: `method sendEmail, params.to[2]`.
  public func validate(
    request name: String, params: ServiceValue?, attachmentCount: Int = 0
  ) throws(ServicesError) {
    let method = try method(name)
    do throws(Problem) {
      try checkAgainst(method.params, params, path: Self.path(name, "params"))
      try checkAgainst(method.attachments, attachmentCount, path: Self.path(name, "attachments"))
    } catch {
      throw error.error(.invalidParams)
    }
  }

  /// Checks a reply that is no error; `name` is the method of the request. Throws as for a request; also when no reply is defined.
  public func validate(
    response name: String, params: ServiceValue?, attachmentCount: Int = 0
  ) throws(ServicesError) {
    let method = try method(name)
    do throws(Problem) {
      guard let resultValue = method.resultValue else {
        throw Problem(path: Self.path(name, "result"), detail: "no reply is defined")
      }
      try checkAgainst(resultValue, params, path: Self.path(name, "result"))
      try checkAgainst(method.resultAttachments, attachmentCount, path: Self.path(name, "result attachments"))
    } catch {
      throw error.error(.invalidParams)
    }
  }

  /// Checks a reply that is an error; `name` is the method of the request. Throws as for a request; also when neither a reply nor an error is
  /// defined, and when errors are defined and this one is not among them.
  public func validate(error: ServiceReplyError, of name: String) throws(ServicesError) {
    let method = try method(name)
    do throws(Problem) {
      guard method.definesReply else {
        throw Problem(path: Self.path(name, "error"), detail: "no reply is defined")
      }
      if method.errors.isEmpty { return }
      guard let definition = method.errors.first(where: { $0.code == error.code }) else {
        let codes = method.errors.map { "\($0.code)" }.joined(separator: ", ")
        throw Problem(
          path: Self.path(name, "error.code"), detail: "expected one of \(codes), found \(error.code)")
      }
      try checkAgainst(definition.data, .object(error.details), path: Self.path(name, "error.details"))
      try checkAgainst(
        definition.attachments, error.attachments.count, path: Self.path(name, "error attachments"))
    } catch {
      throw error.error(.invalidParams)
    }
  }

  /// Names of methods come from the other side: they are written as keys are.
  private static func path(_ method: String, _ part: String) -> ServicePath {
    let name = ServicePath("").appending(.key(method)).text
    return ServicePath("method " + (name.hasPrefix(".") ? String(name.dropFirst()) : name) + ", " + part)
  }
}

private func checkAgainst(
  _ definition: ParameterDefinition?, _ value: ServiceValue?, path: ServicePath
) throws(Problem) {
  guard let definition else {
    // An object without members is how some apps say "none".
    switch value {
    case nil, .null, .object([:]): return
    case let value?: throw Problem(path: path, detail: "expected none, found \(value.kind.rawValue)")
    }
  }
  guard let value else {
    if definition.isRequired && definition.type != .kind(.null) {
      throw Problem(path: path, detail: "missing, and required")
    }
    return
  }
  var path = path
  try definition.check(value, at: &path)
}

private func checkAgainst(
  _ definition: AttachmentsDefinition?, _ count: Int, path: ServicePath
) throws(Problem) {
  let least = definition?.countMin ?? 0
  let most = definition == nil ? 0 : definition?.countMax
  if count >= least && count <= most ?? .max { return }
  let expected =
    switch most {
    case 0: "none"
    case least: "exactly \(least)"
    default: count < least ? "at least \(least)" : "at most \(most ?? .max)"
    }
  throw Problem(path: path, detail: "expected \(expected), found \(count)")
}

extension ParameterDefinition {
  fileprivate func check(_ value: ServiceValue, at path: inout ServicePath) throws(Problem) {
    if case .kind(let kind) = type, value.kind != kind, !(kind == .number && value.kind == .integer) {
      throw Problem(path: path, detail: "expected \(kind.rawValue), found \(value.kind.rawValue)")
    }
    if let allowedValues, !allowedValues.contains(where: { isSame($0, value) }) {
      throw Problem(path: path, detail: "not one of the \(allowedValues.count) allowed values")
    }
    switch value {
    case .array(let elements):
      guard let items else { return }
      for (i, element) in elements.enumerated() {
        path.steps.append(.index(i))
        try items.check(element, at: &path)
        path.steps.removeLast()
      }
    case .object(let members):
      // In order, so that of several mistakes the same one is reported always; definitions are small.
      for name in properties.keys.sorted(by: utf8Order) {
        guard let definition = properties[name] else { continue }
        path.steps.append(.key(name))
        if let member = members[name] {
          try definition.check(member, at: &path)
        } else if definition.isRequired {
          throw Problem(path: path, detail: "missing, and required")
        }
        path.steps.removeLast()
      }
    default: break
    }
  }

  /// The enum of a number may list 1 and mean 1.0: JSON authors do not tell them apart.
  private func isSame(_ allowed: ServiceValue, _ value: ServiceValue) -> Bool {
    if allowed == value { return true }
    guard type == .kind(.number), let a = allowed.numberValue, let b = value.numberValue else { return false }
    return a == b
  }
}
