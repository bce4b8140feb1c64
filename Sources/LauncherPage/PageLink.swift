import Foundation
import Locks
import UnixSockets

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

/// Where a user's files are that last as long as the session.
enum UserDirectory {
  /// `opendynamics` in `XDG_RUNTIME_DIR`, else `/tmp/opendynamics-<uid>`.
  static var path: String {
    let directory = ProcessInfo.processInfo.environment["XDG_RUNTIME_DIR"]
    if let directory, directory.hasPrefix("/") { return directory + "/opendynamics" }
    return "/tmp/opendynamics-\(geteuid())"
  }
}

/// The file that leads a browser to the page. The address, which holds a token, stands in it and nowhere else: whoever can see command
/// lines does not see it.
struct PageLink: Sendable {
  let url: URL
  /// The file that was written last.
  private let written = Guarded<ino_t?>(nil)

  /// Makes the directory when it is not there, and refuses one that is not this user's own.
  init(in directory: URL, for application: String) throws {
    let path = directory.path
    if mkdir(path, 0o700) != 0, errno != EEXIST {
      throw LauncherPageError(.linkNotWritten, detail: "\(path): \(String(cString: strerror(errno)))")
    }
    do {
      try SocketDirectory.check(path, .closedToOthers)
    } catch {
      throw LauncherPageError(.unsafeDirectory, detail: "\(error)")
    }
    url = directory.appending(path: "launcher-\(application).html")
  }

  /// Writes it anew, whole or not at all.
  func lead(to address: String) throws {
    let text = """
      <!doctype html>
      <meta charset="utf-8">
      <meta name="referrer" content="no-referrer">
      <meta http-equiv="refresh" content="0;url=\(address)">
      <title>Launcher</title>
      <p><a href="\(address)">Open the launcher</a></p>

      """
    let (path, new) = (url.path, url.path + ".new")
    unlink(new)
    let descriptor = open(new, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0o600)
    guard descriptor >= 0 else { throw fault() }
    defer { close(descriptor) }
    let bytes = Array(text.utf8)
    var status = stat()
    guard fchmod(descriptor, 0o600) == 0, write(descriptor, bytes, bytes.count) == bytes.count,
      fstat(descriptor, &status) == 0, rename(new, path) == 0
    else {
      let fault = fault()
      unlink(new)
      throw fault
    }
    written.withLock { $0 = status.st_ino }
  }

  /// Not one that another process has put there since.
  func remove() {
    var status = stat()
    guard lstat(url.path, &status) == 0, status.st_ino == written.withLock({ $0 }) else { return }
    unlink(url.path)
  }

  private func fault() -> LauncherPageError {
    LauncherPageError(.linkNotWritten, detail: "\(url.path): \(String(cString: strerror(errno)))")
  }
}
