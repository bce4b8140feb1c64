import AppKinetics
import ArgumentParser
import Foundation

struct AppPresentCommand: ParsableCommand, ReportingCommand {
  static let configuration = CommandConfiguration(
    commandName: "present",
    abstract: "Is there for an app whose container is not open, until the app runs or this is interrupted.",
    discussion: """
      To other apps the app is locked: their messages with files wait, and their requests without files wait for 30 s. Which apps want something of \
      it, and whether the user brings it to front, are lines. It needs no key of the container, and the app has to have run once (dynamics app run).
      """)

  @Argument(help: "The app's container.", completion: .directory)
  var dir: String

  @OptionGroup var broker: BrokerSocketOptions

  @Flag(help: "Prints each event as a JSON object on a line of its own.")
  var json = false

  var reportsJSON: Bool { json }

  func run() throws {
    let report = EventReport(asJSON: json, bar: ArrivalBar(SharedProgressBar(nil)))
    defer { report.flush() }
    let app = try LockedApp(containerAt: URL(filePath: dir), options: broker.services)
    try AsyncWork.run {
      try await app.start()
      report.write(AppEvent("present", app: app.application.text))
      async let peers: Void = report.follow(app.waitingPeers)
      async let front: Void = {
        // Not in front is what everybody expects of an app that has just come.
        var known = false
        for await isInFront in app.frontChanges where isInFront != known {
          known = isInFront
          report.write(AppEvent(isInFront ? "in front" : "not in front"))
        }
      }()
      try await app.run()
      _ = await (peers, front)
      guard !Task.isCancelled else { return }
      report.write(AppEvent("running", app: app.application.text))
      if !json { StandardError.write(Self.advice(app.application.text)) }
    }
  }

  /// The user reads this when a process that has opened the container has taken the place.
  private static func advice(_ app: String) -> String {
    "dynamics: another process runs as \(PrintableText.of(app)); "
      + "start app present again when that process has ended\n"
  }
}
