import SodiumPrimitives
import Testing

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

/// Limits of the system that a process lives under.
struct LimitTests {
  /// `dynamics` from a shell that runs `limit` first.
  private func run(_ limit: String, _ arguments: String, in folder: TemporaryFolder) throws
    -> DynamicsProcess.Outcome
  {
    let line = "\(limit); exec dynamics \(arguments) --key-file \(folder.path("key"))"
    return try DynamicsProcess(
      ["-c", line].map { Array($0.utf8) }, in: folder, environment: TaskTableTests.environment,
      executable: "/bin/sh"
    ).finish()
  }

  @Test(arguments: [5, 7, 9, 10, 11, 12])
  func tooFewDescriptorsAreAnError(count: Int) throws {
    let folder = try TemporaryFolder()
    let container = try folder.makeContainer()
    for arguments in ["mkdir \(container) /d", "container verify \(container)", "ls \(container)"] {
      let outcome = try run("ulimit -n \(count)", arguments, in: folder)
      #expect(outcome.status == 1, "\(arguments)")
      #expect(outcome.errors.contains("too few files"), "\(outcome.errors)")
    }
    // The soft limit is the program's to raise.
    #expect(try run("ulimit -S -n \(count)", "mkdir \(container) /d", in: folder).status == 0)
  }

  @Test func aFileThatMayNotGrowIsAnError() throws {
    let folder = try TemporaryFolder()
    let container = try folder.makeContainer()
    let file = try folder.makeFile("f", Random.bytes(3_000_000))
    let outcome = try run("ulimit -f 2048", "put \(container) \(file)", in: folder)
    #expect(outcome.status == 1)
    #expect(outcome.errors.contains("ulimit -f"), "\(outcome.errors)")
    try folder.run("container", "verify", container)
    #expect(try folder.run("ls", container).text == "")
    try folder.run("put", container, file)
  }

  @Test func aBackupThatMayWriteNothingLeavesNothing() throws {
    let folder = try TemporaryFolder()
    let container = try folder.makeContainer()
    let copy = folder.path("copy")
    // Nor can it write to standard error, which is a file here.
    #expect(try run("ulimit -f 0", "container backup \(container) \(copy)", in: folder).status == 1)
    #expect(!exists(copy))
  }

  /// Files that are made in one go, and those that threads write together.
  @Test(arguments: [("000", 0o664), ("022", 0o644), ("077", 0o600)], [1, 3 << 20])
  func whatComesOutObeysTheUmask(permissions: (mask: String, left: mode_t), byteCount: Int) throws {
    let (mask, permissions) = permissions
    let folder = try TemporaryFolder()
    let container = try folder.makeContainer()
    let file = try folder.makeFile("f", [UInt8](repeating: 1, count: byteCount))
    try #require(chmod(file, 0o6666) == 0)
    try folder.run("put", container, file)
    let out = folder.path("g")
    #expect(try run("umask \(mask)", "get \(container) /f \(out)", in: folder).status == 0)
    var status = stat()
    try #require(lstat(out, &status) == 0)
    #expect(status.st_mode & 0o7777 == permissions)
  }

  // MARK: As root, who can be somebody else

  /// Gives everything to a user that no other process belongs to.
  private func give(_ folder: TemporaryFolder, to user: Int) throws {
    try #require(
      DynamicsProcess(
        ["-R", "\(user):\(user)", folder.root].map { Array($0.utf8) }, in: folder, executable: "/bin/chown"
      ).finish().status == 0)
  }

  /// Whatever the number of threads that the system gives: the work is done, or there is an error that says why.
  @Test(.enabled(if: geteuid() == 0), arguments: 1...8)
  func fewThreadsAreNoReasonToCrashOrHang(count: Int) throws {
    let folder = try TemporaryFolder()
    let container = try folder.makeContainer()
    let file = try folder.makeFile("f", Random.bytes(3_000_000))
    try folder.run("put", container, file)
    let user = 54_320 + count
    try give(folder, to: user)
    for arguments in [
      "get \(container) /f \(folder.path("out"))", "container verify \(container)",
      "put \(container) \(file) /again", "container compact \(container)",
    ] {
      let line =
        "prlimit --nproc=\(count) --pid $$; exec \(DynamicsProcess.executable) \(arguments) --key-file \(folder.path("key"))"
      let outcome = try DynamicsProcess(
        [
          "20", "setpriv", "--reuid=\(user)", "--regid=\(user)", "--clear-groups", "--inh-caps=-all",
          "/bin/sh",
          "-c", line,
        ].map { Array($0.utf8) }, in: folder, executable: "/usr/bin/timeout"
      ).finish()
      let isAllowed = outcome.status == 0 || outcome.status == 1 && outcome.errors.contains("ulimit -u")
      #expect(isAllowed, "\(arguments) with \(count): \(outcome.status) \(outcome.errors)")
    }
    try folder.run("container", "verify", container)
  }

  /// What root writes to the container of a user belongs to the user, who could not even read it else.
  @Test(.enabled(if: geteuid() == 0)) func newFilesBelongToTheOwnerOfTheContainer() throws {
    let folder = try TemporaryFolder()
    let container = try folder.makeContainer()
    try give(folder, to: 54_320)
    let file = try folder.makeFile("f", Random.bytes(70_000_000))
    for i in 0..<3 { try folder.run("put", container, file, "/\(i)") }
    try folder.run("container", "compact", container)
    let listed = try DynamicsProcess(
      [container, "!", "-uid", "54320", "-o", "!", "-gid", "54320"].map { Array($0.utf8) }, in: folder,
      executable: "/usr/bin/find"
    ).finish()
    #expect(listed.status == 0 && listed.text.isEmpty, "\(listed.text)")
  }
}
