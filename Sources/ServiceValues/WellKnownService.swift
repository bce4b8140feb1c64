/// Services that many apps offer and ask for, with definitions of our own wording.
///
/// The raw value is the name of the definition's file in Fixtures/ServiceDefinitions.
public enum WellKnownService: String, Sendable, CaseIterable {
  /// `com.good.gdservice.transfer-file` 1.0.0.0: takes one file, and replies without a value.
  case transferFile = "transfer-file"
  /// `com.good.gdservice.save-files` 1.0.0.0: takes one or more files, and replies without a value.
  case saveFiles = "save-files"
  /// `com.good.gdservice.edit-file` 1.0.0.0: opens one file for editing. The result comes back through
  /// ``saveEditedFile``, which the asking app offers.
  case editFile = "edit-file"
  /// `com.good.gdservice.save-edited-file` 1.0.0.0: takes back a file that was sent for editing. It has no
  /// reply.
  case saveEditedFile = "save-edited-file"
  /// `com.good.gfeservice.send-email` 1.0.0.0: opens a new message for the user. It has no reply.
  case sendEmail = "send-email"
  /// `com.good.gdservice.open-url.http` 1.0.0.0: opens a web page. It has no reply.
  case openURL = "open-url.http"
  /// `com.good.gdservice.create-calendar-item` 1.0.0.0: opens a new calendar item for the user. It has no
  /// reply.
  case createCalendarItem = "create-calendar-item"
  /// `com.blackberry.gdservice.open-catalog` 1.0.0.0: opens an entry of the catalog of apps. It has no reply.
  case openCatalog = "open-catalog"
  /// `com.good.gsservice.open-share-url` 1.0.0.0: opens a location in a file share. It has no reply.
  case openShareURL = "open-share-url"
  /// `com.good.gdservice.request-links` 1.0.0.0: asks another app for links. Its params and its reply are public
  /// nowhere: the definition takes any, and says nothing of what they mean.
  case requestLinks = "request-links"
  /// `com.good.gd.icc` 1.0.0.0: asks the app in front to bring the asking app to front. It has no reply.
  case frontRequest = "front-request"
  /// `com.good.gd.example.services.greetings` 1.0.0: an example that replies with a greeting, or takes files.
  case greetings = "greetings"

  /// The definition of the service. All definitions are parsed once, at the first call.
  public var definition: ServiceDefinition {
    guard let definition = Self.definitions[self] else { preconditionFailure("every case has a definition") }
    return definition
  }

  /// The id of the service.
  public var serviceID: ServiceIdentifier { definition.serviceID }
  /// The version of the service.
  public var version: ServiceVersion { definition.version }

  /// The service with this id and version; nil if none is well known.
  public init?(serviceID: ServiceIdentifier, version: ServiceVersion) {
    let known = Self.definitions.first { $0.value.serviceID == serviceID && $0.value.version == version }
    guard let known else { return nil }
    self = known.key
  }

  /// Read once, when the first is asked for.
  private static let definitions = Dictionary(
    uniqueKeysWithValues: allCases.map { service in
      do {
        return (service, try ServiceDefinition(jsonText: service.definitionText))
      } catch {
        preconditionFailure("the text of \(service.rawValue) is no definition: \(error)")
      }
    })
}
