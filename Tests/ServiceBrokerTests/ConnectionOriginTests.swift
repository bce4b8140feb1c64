import Foundation
import ServiceWire
import Testing
import UnixSockets

@testable import ServiceBroker

struct ConnectionOriginTests {
  @Test(arguments: [
    ("unconfined\n", nil), ("", nil), ("kernel\0", nil), ("/usr/bin/notes (complain)\n", nil),
    ("snap.notes.notes (enforce)\n", "snap.notes.notes"),
    ("unconfined_u:unconfined_r:unconfined_t:s0-s0:c0.c1023\0", nil),
    ("system_u:system_r:container_t:s0:c1,c2\0", "system_u:system_r:container_t:s0:c1,c2"),
  ])
  func readsLabelsOfConfinement(text: String, label: String?) {
    #expect(ConnectionOrigin.confinement(text) == label)
  }

  /// Instances of one sandbox are one origin.
  @Test(arguments: [
    (
      "0::/user.slice/app.slice/app-flatpak-org.example.Notes-4711.scope\n",
      "app-flatpak-org.example.Notes"
    ),
    ("0::/user.slice/app.slice/app-flatpak-org.example.Notes-815.scope\n", "app-flatpak-org.example.Notes"),
    ("0::/app.slice/flatpak-org.example.Notes-4711.scope\n", "flatpak-org.example.Notes"),
    ("0::/app.slice/app-gnome-notes.scope\n", "app-gnome-notes.scope"),
    ("0::/app.slice/app-gnome-org.example.Notes@a1b2.service\n", "app-gnome-org.example.Notes"),
    ("0::/app.slice/app-org.example.Notes.service\n", "app-org.example.Notes.service"),
    ("0::/app.slice/app-4711.scope\n", "app-4711.scope"), ("0::/app-.scope\n", "app-.scope"),
    ("0::/machine.slice/libpod-0123-4567.scope\n", "libpod-0123-4567.scope"),
    ("12:cpu:/x\n0::/box/123/45\n", "box"), ("0::/\n", "sandbox"), ("0::/17\n", "sandbox"), ("", "sandbox"),
  ])
  func readsControlGroups(text: String, label: String) {
    #expect(ConnectionOrigin.controlGroup(text) == label)
  }

  @Test func aLabelHasALimit() {
    let long = String(repeating: "x", count: 5000)
    #expect(ConnectionOrigin.confinement(long + " (enforce)")?.utf8.count == 128)
    #expect(ConnectionOrigin.controlGroup("0::/" + long).utf8.count == 128)
  }

  #if os(Linux)
    @Test func thisProcessIsPlainAndOneThatHasEndedIsNothing() throws {
      #expect(ConnectionOrigin.read(ProcessInfo.processInfo.processIdentifier) == .plain)
      let ended = Process()
      ended.executableURL = URL(filePath: "/bin/true")
      try ended.run()
      ended.waitUntilExit()
      #expect(ConnectionOrigin.read(ended.processIdentifier) == nil)
      let pair = try SocketPair()
      let end = pair.first
      #expect(ConnectionOrigin.read(end, process: ProcessInfo.processInfo.processIdentifier) == .plain)
      #expect(ConnectionOrigin.read(end, process: 0) == nil)
    }

    /// Where namespaces may be made; `unshare` says so.
    @Test(arguments: [["--user", "--map-root-user"], ["--user", "--map-root-user", "--mount"]])
    func aProcessInNamespacesOfItsOwnIsASandbox(options: [String]) throws {
      let process = Process()
      process.executableURL = URL(filePath: "/usr/bin/unshare")
      process.arguments = options + ["/bin/sh", "-c", "echo; exec cat"]
      let output = Pipe()
      let input = Pipe()
      process.standardInput = input
      process.standardOutput = output
      process.standardError = FileHandle.nullDevice
      try process.run()
      defer {
        try? input.fileHandleForWriting.close()
        process.waitUntilExit()
      }
      guard try output.fileHandleForReading.read(upToCount: 1)?.isEmpty == false else { return }
      let origin = ConnectionOrigin.read(process.processIdentifier)
      #expect(origin != nil && origin != .plain)
    }
  #endif
}
