import AppRuntime
import Testing

@testable import BlackBerryDynamics

struct ConfigurationTests {
  @Test func aProgramWithoutInfoHasAConfiguration() throws {
    let configuration = GDConfiguration(
      plist: [:], environment: ["XDG_DATA_HOME": "/data"], program: "My App")
    #expect(configuration.applicationID == "local.My-App" && configuration.name == "My App")
    #expect(configuration.container.path == "/data/opendynamics/apps/local.My-App")
    var other = configuration
    other.applicationID = "com.example.other"
    #expect(other.container.path == "/data/opendynamics/apps/com.example.other")
    #expect(configuration.management == nil && configuration.services.isEmpty)
    #expect(configuration.checksEventReceiver)
    #expect(try configuration.application().entitlementID == "local.My-App")
  }

  @Test func infoAndEnvironmentAreRead() throws {
    let configuration = GDConfiguration(
      plist: [
        "CFBundleIdentifier": "com.example.Notes", "CFBundleName": "Notes",
        "GDApplicationID": "com.example.notes.entitlement", "GDApplicationVersion": "2.0.0.1",
        "GDServices": [["identifier": "com.example.append", "version": "1.0.0"], ["version": "1"]],
        "BlackBerryDynamics": ["CheckEventReceiver": false],
      ],
      environment: [
        "OPENDYNAMICS_CONTAINER": "/srv/notes", "OPENDYNAMICS_MANAGED": "/etc/notes.json",
        "XDG_DATA_HOME": "relative",
      ], program: "notes")
    let application = try configuration.application()
    #expect(application.id.text == "com.example.Notes" && application.name == "Notes")
    #expect(application.entitlementID == "com.example.notes.entitlement")
    #expect(application.entitlementVersion.text == "2.0.0.1")
    #expect(configuration.container.path == "/srv/notes")
    #expect(configuration.management == "/etc/notes.json" && !configuration.checksEventReceiver)
    #expect(configuration.services == [.init("com.example.append", version: "1.0.0")])
  }

  /// The source of a project has such texts.
  @Test func buildSettingsAreNoValues() {
    let configuration = GDConfiguration(
      plist: ["CFBundleIdentifier": "$(PRODUCT_BUNDLE_IDENTIFIER)", "CFBundleName": "${PRODUCT_NAME}"],
      environment: [:], program: "notes")
    #expect(configuration.applicationID == "local.notes" && configuration.name == "notes")
  }

  @Test func aServiceThatIsNoneOrThereAlreadyIsLeftOut() {
    var configuration = GDConfiguration(plist: [:], environment: [:], program: "notes")
    configuration.services = [
      .init("Not A Service"), .init("com.example.a"), .init("com.example.a"),
      .init("com.example.b", version: "x"),
    ]
    #expect(configuration.definitions().map(\.serviceID.text) == ["com.example.a"])
  }

  @Test func anIDThatIsNoneIsThrown() {
    var configuration = GDConfiguration(plist: [:], environment: [:], program: "notes")
    configuration.applicationID = "notes"
    #expect(throws: (any Error).self) { try configuration.application() }
  }

  @Test func aRecordCollectsMisuses() {
    let record = GDMisuse.Record()
    record.add(GDMisuse(call: "send", reason: GDMisuse.tooEarly))
    #expect(record.all.map(\.call) == ["send"])
    #expect(record.all[0].description.hasPrefix("send: Not authorized."))
  }

  @Test func everyFlagOfTheOwnerHasAKeyOfItsOwn() {
    var owner = AppConfiguration()
    for flag in AppConfiguration.Flag.allCases {
      owner.flags = [flag: true]
      let values = owner.values(instance: nil, isProtectedByPassword: false)
      #expect(values.values.count { $0 as? Int == 1 } == 1)
      #expect(values.values.count { $0 as? Int == 0 } == AppConfiguration.Flag.allCases.count)
    }
  }
}
