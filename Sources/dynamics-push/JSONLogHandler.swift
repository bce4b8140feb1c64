import Foundation
import Logging

/// Writes each entry as one JSON object a line on the standard error: `time`, `level`, `label`, `message`, and
/// the metadata.
struct JSONLogHandler: LogHandler {
  let label: String
  var logLevel = Logger.Level.info
  var metadata: Logger.Metadata = [:]

  init(label: String) {
    self.label = label
  }

  subscript(metadataKey key: String) -> Logger.Metadata.Value? {
    get { metadata[key] }
    set { metadata[key] = newValue }
  }

  func log(event: LogEvent) {
    var fields: [String: String] = [:]
    for (name, value) in metadata.merging(event.metadata ?? [:], uniquingKeysWith: { $1 }) {
      fields[name] = "\(value)"
    }
    fields["time"] = Date().formatted(.iso8601)
    fields["level"] = event.level.rawValue
    fields["label"] = label
    fields["message"] = "\(event.message)"
    guard
      let line = try? JSONSerialization.data(
        withJSONObject: fields, options: [.sortedKeys, .withoutEscapingSlashes])
    else { return }
    FileHandle.standardError.write(line + Data("\n".utf8))
  }
}
