import ContainerStore
import Foundation
import SodiumPrimitives

/// The facts without which a figure means nothing. No host name and no path.
struct Machine: Encodable {
  var date: String
  var processor: String
  var cores: Int
  var memoryByteCount: UInt64
  var kernel: String
  var libsodium: String
  var libcrypto: String
  var fileSystem: String
  var cp: String
  var loadAverage: String

  init(directory: String) {
    date = ISO8601DateFormatter().string(from: Date())
    processor = Self.value(of: "model name", in: "/proc/cpuinfo") ?? "unknown"
    cores = processorCount()
    memoryByteCount = ProcessInfo.processInfo.physicalMemory
    kernel = Self.text("/proc/sys/kernel/osrelease") ?? "unknown"
    libsodium = Self.sodiumVersion()
    libcrypto = CipherBackend.libcryptoVersion ?? "not installed"
    let file = Self.output("stat", ["--file-system", "--format=%T", directory])
    fileSystem = Self.mountedType(of: directory) ?? file ?? "unknown"
    cp = Self.output("cp", ["--version"])?.split(separator: "\n").first.map(String.init) ?? "unknown"
    loadAverage = Self.loadAverage()
  }

  var description: String {
    let memory = Double(memoryByteCount) / Double(1 << 30)
    return """
      date         \(date)
      processor    \(processor), \(cores) cores
      memory       \(memory.formatted(decimals: 1)) GiB
      kernel       \(kernel)
      libsodium    \(libsodium)
      libcrypto    \(libcrypto)
      cp           \(cp)
      file system  \(fileSystem)
      load average \(loadAverage)
      """
  }

  /// What this process has in memory now.
  static func residentByteCount() -> Int {
    let pages =
      (text("/proc/self/statm") ?? "").split(separator: " ").dropFirst().first.flatMap { Int($0) } ?? 0
    return pages * Int(getpagesize())
  }

  static func loadAverage() -> String {
    (text("/proc/loadavg") ?? "unknown").split(separator: " ").prefix(3).joined(separator: " ")
  }

  /// Asked of the library that is linked: the package does not publish it.
  private static func sodiumVersion() -> String {
    guard let symbol = dlsym(dlopen(nil, RTLD_NOW), "sodium_version_string") else { return "unknown" }
    typealias Version = @convention(c) () -> UnsafePointer<CChar>
    return String(cString: unsafeBitCast(symbol, to: Version.self)())
  }

  /// `stat` cannot tell ext2 from ext4; the table of mounts can.
  private static func mountedType(of directory: String) -> String? {
    output("df", ["--output=fstype", directory])?.split(separator: "\n").last.map(String.init)
  }

  private static func text(_ path: String) -> String? {
    (try? String(contentsOfFile: path, encoding: .utf8))?.trimmingCharacters(in: .whitespacesAndNewlines)
  }

  private static func value(of key: String, in path: String) -> String? {
    text(path)?.split(separator: "\n").first { $0.hasPrefix(key) }?.split(separator: ":").last?
      .trimmingCharacters(in: .whitespaces)
  }

  private static func output(_ command: String, _ arguments: [String]) -> String? {
    let process = Process()
    process.executableURL = URL(fileURLWithPath: "/usr/bin/env")
    process.arguments = [command] + arguments
    let pipe = Pipe()
    process.standardOutput = pipe
    guard (try? process.run()) != nil else { return nil }
    let data = pipe.fileHandleForReading.readDataToEndOfFile()
    process.waitUntilExit()
    guard process.terminationStatus == 0 else { return nil }
    return String(decoding: data, as: UTF8.self).trimmingCharacters(in: .whitespacesAndNewlines)
  }
}

extension Double {
  func formatted(decimals: Int) -> String { String(format: "%.\(decimals)f", self) }
}
