import Logging

/// The log of a relay. Lines of the HTTP server that repeat ours, and its complaints about an ordinary stop,
/// have the level `debug`.
struct RelayLogHandler: LogHandler {
  private var base: any LogHandler

  init(_ base: any LogHandler, level: Logger.Level) {
    self.base = base
    self.base.logLevel = level
  }

  var logLevel: Logger.Level {
    get { base.logLevel }
    set { base.logLevel = newValue }
  }

  var metadata: Logger.Metadata {
    get { base.metadata }
    set { base.metadata = newValue }
  }

  subscript(metadataKey key: String) -> Logger.Metadata.Value? {
    get { base[metadataKey: key] }
    set { base[metadataKey: key] = newValue }
  }

  func log(event: LogEvent) {
    guard event.level > .debug, event.source == "HummingbirdCore", Self.isOrdinary("\(event.message)") else {
      return base.log(event: event)
    }
    guard logLevel <= .debug else { return }
    var quiet = event
    quiet.level = .debug
    base.log(event: quiet)
  }

  private static func isOrdinary(_ message: String) -> Bool {
    message.hasPrefix("Server started and listening")
      || message == "Waiting on child channel: CancellationError()"
      || message == "Server shutdown error: Already closed"
  }
}
