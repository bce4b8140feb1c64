import EncryptedFile
import SodiumPrimitives

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

/// Locks of writers and pins of readers (CONTAINER-FORMAT.md, "Locks and readers' pins").
enum ContainerLock {
  static let name = "lock"

  /// Takes the writer's lock or, for a reader, the pin that keeps everything while it reads the
  /// state. Throws `locked`: at once when this process holds the lock, unless it is closing what holds it, otherwise after 255 ms.
  ///
  /// A lock belongs to an open file description, which a child shares with its parent until the
  /// child calls exec(2): the lock of a process that was killed may live that much longer.
  ///
  /// A reader that cannot lock says so in `log`.
  static func take(
    _ io: any BlockIO, mode: ContainerMode, log: FindingLog = FindingLog()
  ) throws -> any BlockFile {
    var (file, name) = try open(io, mode: mode, log)
    var milliseconds: UInt32 = 1
    var hasWaited = false
    while true {
      let isGranted =
        switch mode {
        case .readWrite: try file.tryLock(.writer, exclusive: true)
        case .readOnly: try file.tryLock(.entry, exclusive: false)
        }
      if isGranted {
        if try io.leads(name, to: file) {
          if file.lacksLocks { log.add(unprotected("this file system has no locks")) }
          return file
        }
        // Whoever had it has removed it, or somebody has replaced it.
        (file, name) = try open(io, mode: mode, log)
      }
      let refusal = isGranted ? ContainerError(.replaced) : try locked(file, at: io.place)
      if !hasWaited {
        // By an opening of this process that is ending, whether or not the file says so. It may have ended just now, too.
        Openings.shared.waitForQuiet(of: try file.identity())
        hasWaited = true
        continue
      }
      guard refusal.circumstance != .ownLock, milliseconds <= 128 else { throw refusal }
      // The holder is another process, and locks of files tell nobody that they have become free.
      usleep(milliseconds * 1000)
      milliseconds *= 2
    }
  }

  private static func open(
    _ io: any BlockIO, mode: ContainerMode, _ log: FindingLog
  ) throws -> (any BlockFile, name: String) {
    do throws(IOFailure) {
      // A copy may have left it out.
      return (try io.openOrCreate(name, mode == .readWrite ? .readWrite : .read), name)
    } catch {
      guard mode == .readOnly, error.isOfFile || refusedAccess.union(noSpace).contains(error.errno) else {
        throw error
      }
      log.add(unprotected("\(error)"))
      // Locks on another file exclude nobody.
      return (try io.open(Superblock.name, .read), Superblock.name)
    }
  }

  /// What a reader says where it cannot lock.
  private static func unprotected(_ reason: String) -> Finding {
    Finding(.note, .notLocked, "\(reason): a writer elsewhere would not be noticed")
  }

  /// Replaces the pin of everything by that of one commit.
  static func pin(_ commit: UInt64, _ file: any BlockFile) throws {
    _ = try file.tryLock(.pin(commit), exclusive: false)
    file.unlock(.entry)
  }

  /// The error for a file that is missing because the directory was removed while a writer had it open.
  static func replaced(_ store: Store, _ error: any Error) -> ContainerError? {
    guard store.mode == .readWrite, (error as? IOFailure)?.errno == missingFile,
      (try? store.io.leads(name, to: store.lockFile)) == false
    else { return nil }
    return ContainerError(.replaced)
  }

  static func describeHolder(_ file: any BlockFile) throws {
    try file.truncate(to: 0)
    try file.write(Array(ownDescription().utf8), at: 0)
  }

  private static func ownDescription() -> String {
    "pid \(getpid())\nhost \(hostName())\nboot \(bootID())\nprocess \(process)\n"
  }

  /// Two processes may have one number, in two namespaces of one host.
  private static let process = Identifier.random().hex

  private static func locked(_ file: any BlockFile, at place: String) throws -> ContainerError {
    let text = String(decoding: try file.read(1024, at: 0), as: UTF8.self)
    let isOwn = text == ownDescription()
    return ContainerError(
      .locked, path: place, detail: holder(text), circumstance: isOwn ? .ownLock : .usual)
  }

  /// The holder as "process 1234 on host", as far as the lock file names it.
  private static func holder(_ text: String) -> String? {
    var fields: [Substring: Substring] = [:]
    for line in text.split(separator: "\n") {
      let parts = line.split(separator: " ", maxSplits: 1)
      if parts.count == 2 { fields[parts[0]] = parts[1] }
    }
    guard let pid = fields["pid"] else { return nil }
    return "process \(pid)" + (fields["host"].map { " on \($0)" } ?? "")
  }

  static func hostName() -> String {
    withUnsafeTemporaryAllocation(of: CChar.self, capacity: 256) { buffer in
      buffer.initialize(repeating: 0)
      guard gethostname(buffer.baseAddress!, 255) == 0 else { return "unknown" }
      return String(cString: buffer.baseAddress!)
    }
  }

  static func bootID() -> String {
    guard let file = fopen("/proc/sys/kernel/random/boot_id", "r") else { return "unknown" }
    defer { fclose(file) }
    return withUnsafeTemporaryAllocation(of: CChar.self, capacity: 64) { buffer in
      buffer.initialize(repeating: 0)
      guard fgets(buffer.baseAddress!, 64, file) != nil else { return "unknown" }
      return String(String(cString: buffer.baseAddress!).prefix { $0 != "\n" })
    }
  }
}
