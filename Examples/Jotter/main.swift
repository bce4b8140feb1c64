// Notes in a secure store, to which other apps add. Everything but this file is written as for
// BlackBerry Dynamics on a device (Documentation/GD-MIGRATION.md).
//
//   Jotter add TEXT | list | share FILE APP | serve
//
// JOTTER_ID is the app's id, so that two of them can send files to each other.
// OPENDYNAMICS_CONTAINER and OPENDYNAMICS_MANAGED name its container and its owner's file.
import BlackBerryDynamics.Runtime

/// The terminal, in the place of a view.
class Terminal: JotterScreen {
  func show(_ line: String) { print(line) }
  func showError(_ line: String) { FileHandle.standardError.write(Data("Jotter: \(line)\n".utf8)) }
  func cover(_ reason: String) { showError(reason) }
  func uncover() {}
}

guard let command = Command(Array(CommandLine.arguments.dropFirst())) else {
  FileHandle.standardError.write(Data("\(Command.usage)\n".utf8))
  exit(ExitCode.usage)
}
// A line at a time, also into a pipe.
setvbuf(stdout, nil, _IOLBF, 0)

// On a device the bundle and the console say this.
var configuration = GDConfiguration()
configuration.applicationID = ProcessInfo.processInfo.environment["JOTTER_ID"] ?? "com.example.jotter"
configuration.name = "Jotter"
configuration.services = [GDConfiguration.Service(AppendNote.service, version: AppendNote.version)]
GDConfiguration.current = configuration

let terminal = Terminal()
let jotter = JotterApp.shared
jotter.screen = terminal
jotter.sender.ownAddress = configuration.applicationID
jotter.timeLimit = 60
jotter.start(command)

// The runtime calls its delegates on the main queue.
dispatchMain()
