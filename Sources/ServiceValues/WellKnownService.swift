/// Services that many apps offer and ask for, with definitions of our own wording.
///
/// The raw value is the name of the definition's file in Fixtures/ServiceDefinitions.
public enum WellKnownService: String, Sendable, CaseIterable {
  case transferFile = "transfer-file"
  case saveFiles = "save-files"
  case editFile = "edit-file"
  case saveEditedFile = "save-edited-file"
  case sendEmail = "send-email"
  case openURL = "open-url.http"
  case createCalendarItem = "create-calendar-item"
  case openCatalog = "open-catalog"
  case openShareURL = "open-share-url"
  case frontRequest = "front-request"
  case greetings = "greetings"

  public var definition: ServiceDefinition {
    guard let definition = Self.definitions[self] else { preconditionFailure("every case has a definition") }
    return definition
  }

  public var serviceID: ServiceIdentifier { definition.serviceID }
  public var version: ServiceVersion { definition.version }

  /// The one with this id and version; nil if there is none.
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
