import AppKinetics

extension GDConfiguration {
  /// Reads `Info.plist`, which lies beside the program, and the environment.
  public init() {
    self.init(
      plist: Bundle.main.infoDictionary ?? [:], environment: ProcessInfo.processInfo.environment,
      program: ProcessInfo.processInfo.processName)
  }

  /// The configuration that these texts describe. Members of the wrong type count as missing.
  init(plist: [String: Any], environment: [String: String], program: String) {
    // Build settings that nobody has put in, as in a project's source, are no values.
    let text = { (key: String) in
      (plist[key] as? String).flatMap { $0.isEmpty || $0.contains("$(") || $0.contains("${") ? nil : $0 }
    }
    let variable = { (name: String) in environment[name].flatMap { $0.isEmpty ? nil : $0 } }
    applicationID = text("CFBundleIdentifier") ?? "local." + Self.label(program)
    name = text("CFBundleName") ?? program
    entitlementID = text("GDApplicationID")
    entitlementVersion = text("GDApplicationVersion")
    containerSet = variable("OPENDYNAMICS_CONTAINER").map { URL(fileURLWithPath: $0, isDirectory: true) }
    data = Self.dataDirectory(environment)
    version = text("CFBundleShortVersionString") ?? "1.0.0"
    management = variable("OPENDYNAMICS_MANAGED")
    relay = variable("OPENDYNAMICS_RELAY").flatMap { URL(string: $0) }
    relayAuthorities = variable("OPENDYNAMICS_RELAY_AUTHORITIES")
    relayAdmissionKey = variable("OPENDYNAMICS_RELAY_ADMISSION_KEY") ?? ""
    services = (plist["GDServices"] as? [[String: Any]] ?? []).compactMap { service in
      (service["identifier"] as? String).map {
        Service($0, version: service["version"] as? String ?? "1.0.0.0")
      }
    }
    startsLauncher = !(plist["GDDisableAutomaticLauncherManagement"] as? Bool ?? false)
    let options = plist["BlackBerryDynamics"] as? [String: Any]
    checksEventReceiver = options?["CheckEventReceiver"] as? Bool ?? true
  }

  /// A relative path in the variable is ignored, as the XDG specification says.
  private static func dataDirectory(_ environment: [String: String]) -> URL {
    if let path = environment["XDG_DATA_HOME"], path.hasPrefix("/") {
      return URL(fileURLWithPath: path, isDirectory: true)
    }
    return URL(fileURLWithPath: NSHomeDirectory() + "/.local/share", isDirectory: true)
  }

  /// A program's name as a part of an application id.
  private static func label(_ program: String) -> String {
    let letters = program.unicodeScalars.map {
      $0.isASCII && ($0.properties.isAlphabetic || ("0"..."9").contains($0)) ? Character($0) : "-"
    }
    let text = String(letters.prefix(63)).trimmingCharacters(in: CharacterSet(charactersIn: "-"))
    return text.isEmpty ? "app" : text
  }
}
