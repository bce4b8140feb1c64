import Foundation
import ServiceValues

extension WireRegister {
  /// The path of what is wrong with it, and why; nil when nothing is.
  func fault(_ limits: BrokerLimits) -> String? {
    let byteCount = encodedByteCount
    if byteCount > limits.registrationByteCountMax {
      return "registration: \(byteCount) bytes, and \(limits.registrationByteCountMax) are allowed"
    }
    func text(_ path: String, _ text: String) -> String? {
      text.utf8.count > limits.nameByteCountMax || text.contains { $0.isNewline || $0 == "\0" }
        ? "\(path): longer than \(limits.nameByteCountMax) bytes, or with a line break" : nil
    }
    if let wrong = text("name", name) ?? text("entitlement id", entitlementID)
      ?? text("entitlement version", entitlementVersion)
    {
      return wrong
    }
    if icon.count > limits.iconByteCountMax { return "icon: more than \(limits.iconByteCountMax) bytes" }
    if !icon.isEmpty, !icon.starts(with: [0x89, 0x50, 0x4e, 0x47]) { return "icon: no PNG" }
    if services.count > limits.serviceCountMax { return "services: more than \(limits.serviceCountMax)" }
    var seen: Set<[String]> = []
    for (i, service) in services.enumerated() {
      if let wrong = service.fault(limits, at: "services[\(i)]") { return wrong }
      if !seen.insert([service.id, service.version]).inserted { return "services[\(i)]: named twice" }
    }
    return serversFault(limits) ?? callersFault(limits)
  }

  private func callersFault(_ limits: BrokerLimits) -> String? {
    if callers.count > limits.callerCountMax { return "callers: more than \(limits.callerCountMax)" }
    for (i, caller) in callers.enumerated() where Caller(caller) == nil {
      return "callers[\(i)]: no application id, and no fingerprint of \(KeyFingerprint.byteCount) bytes"
    }
    return nil
  }

  /// Whether the app takes requests of one with this id and key.
  func takes(_ appID: String, publicKey: Data?) -> Bool {
    if callers.isEmpty { return true }
    let fingerprint = publicKey.map(KeyFingerprint.of)
    return callers.contains { Caller($0)?.isMet(by: appID, fingerprint) == true }
  }

  private func serversFault(_ limits: BrokerLimits) -> String? {
    if servers.count > limits.serverCountMax { return "servers: more than \(limits.serverCountMax)" }
    for (i, server) in servers.enumerated() {
      do {
        _ = try AppServer(server)
      } catch {
        return "servers[\(i)].\(error.path ?? ""): \(error.detail ?? "no server")"
      }
    }
    return nil
  }
}

extension WireInstall {
  /// What keeps it from being the program of an app; nil when nothing does.
  func fault(_ limits: BrokerLimits) -> String? {
    func isTooLong(_ text: String) -> Bool {
      text.utf8.count > limits.argumentByteCountMax || text.utf8.contains(0)
    }
    if (try? ApplicationID(appID)) == nil { return "app id: no application id" }
    if !program.keyFingerprint.isEmpty, program.keyFingerprint.count != KeyFingerprint.byteCount {
      return "fingerprint: not \(KeyFingerprint.byteCount) bytes"
    }
    if program.path.isEmpty, program.arguments.isEmpty, !program.keyFingerprint.isEmpty { return nil }
    if isTooLong(program.path) || program.path.utf8.first != UInt8(ascii: "/") {
      return "program: no absolute path, or more than \(limits.argumentByteCountMax) bytes"
    }
    if program.arguments.count > limits.argumentCountMax || program.arguments.contains(where: isTooLong) {
      return
        "arguments: more than \(limits.argumentCountMax), or one of more than \(limits.argumentByteCountMax) bytes"
    }
    return nil
  }
}

extension WireService {
  fileprivate func fault(_ limits: BrokerLimits, at path: String) -> String? {
    do {
      _ = try ServiceIdentifier(id)
    } catch {
      return "\(path).id: \(error.detail ?? "no service id")"
    }
    do {
      _ = try ServiceVersion(version)
    } catch {
      return "\(path).version: \(error.detail ?? "no version")"
    }
    if case .UNRECOGNIZED = type { return "\(path).type: not known" }
    if definition.isEmpty { return nil }
    if definition.count > limits.definitionByteCountMax {
      return "\(path).definition: more than \(limits.definitionByteCountMax) bytes"
    }
    do {
      let definition = try ServiceDefinition(json: Array(definition))
      guard definition.serviceID.text == id, definition.version.text == version else {
        return "\(path).definition: of another service or version"
      }
    } catch {
      return "\(path).definition\(error.path.map { "." + $0 } ?? ""): \(error.detail ?? "no definition")"
    }
    return nil
  }
}
