import Logging

/// Log on standard error, written by ``LogQueue``, whose lines have nothing in them that a terminal would obey:
/// what is logged of a message may be a peer's text.
struct PrintableLog: LogHandler {
  private var base: StreamLogHandler

  init(label: String) { base = StreamLogHandler.standardError(label: label) }

  var metadata: Logger.Metadata {
    get { base.metadata }
    set { base.metadata = newValue }
  }

  var logLevel: Logger.Level {
    get { base.logLevel }
    set { base.logLevel = newValue }
  }

  subscript(metadataKey key: String) -> Logger.Metadata.Value? {
    get { base[metadataKey: key] }
    set { base[metadataKey: key] = newValue }
  }

  func log(event: LogEvent) {
    var event = event
    event.message = "\(PrintableText.of(event.message.description))"
    event.metadata = event.metadata?.mapValues { "\(PrintableText.of($0.description))" }
    LogQueue.shared.append { [base, event] droppedCount in
      if droppedCount > 0 {
        var notice = event
        notice.level = .warning
        notice.message = "lines of the log were dropped"
        notice.metadata = ["count": "\(droppedCount)"]
        base.log(event: notice)
      }
      base.log(event: event)
    }
  }
}
