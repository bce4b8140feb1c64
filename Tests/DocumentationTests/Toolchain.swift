import Foundation
import Testing

/// The compiler of the toolchain, with the modules that were built for this test.
enum Toolchain {
  struct Outcome {
    let status: Int32
    /// Both channels of the compiler; only the output of a program.
    let text: String
  }

  /// Where SwiftPM puts what it builds: the folder of this test's executable.
  static var products: URL {
    #if os(Linux)
      URL(filePath: "/proc/self/exe").resolvingSymlinksInPath().deletingLastPathComponent()
    #else
      Bundle(for: Anchor.self).bundleURL.deletingLastPathComponent()
    #endif
  }

  private final class Anchor {}

  private static var modules: [String] {
    let maps = (generatedMaps + ownMaps + mapsOfDependencies).flatMap {
      ["-Xcc", "-fmodule-map-file=\($0.path)"]
    }
    return ["-I", products.appending(path: "Modules").path] + maps
      + ["-I", Page.package.appending(path: "Sources/CSodium").path]
  }

  /// Of C targets without a module map of their own.
  private static var generatedMaps: [URL] {
    folders(in: products).map { $0.appending(path: "module.modulemap") }.filter(exists)
  }

  /// Of C targets with a module map of their own.
  private static var ownMaps: [URL] {
    folders(in: Page.package.appending(path: "Sources"))
      .map { $0.appending(path: "include/module.modulemap") }.filter(exists)
  }

  /// Of C targets in other packages.
  private static var mapsOfDependencies: [URL] {
    let checkouts = products.appending(path: "../../checkouts").standardizedFileURL
    return folders(in: checkouts).flatMap { folders(in: $0.appending(path: "Sources")) }
      .flatMap { [$0.appending(path: "include"), $0] }.map { $0.appending(path: "module.modulemap") }
      .filter(exists)
  }

  private static func folders(in folder: URL) -> [URL] {
    let names = (try? FileManager.default.contentsOfDirectory(atPath: folder.path)) ?? []
    return names.sorted().map { folder.appending(path: $0) }
  }

  private static func exists(_ file: URL) -> Bool { FileManager.default.fileExists(atPath: file.path) }

  /// As a program of a reader is compiled, and using what is deprecated is an error.
  private static let language = ["-swift-version", "6", "-Werror", "DeprecatedDeclaration"]

  static func check(_ sources: [URL]) async throws -> Outcome {
    try await run(["swiftc", "-typecheck"] + language + modules + sources.map(\.path))
  }

  /// The objects of the tests' executable without those of programs and of tests, which leaves the libraries and what they
  /// import, also from other packages. Each is a line as the compiler reads it from a file of arguments.
  private static func objects() throws -> [Substring] {
    let list = products.appending(path: "OpenDynamicsPackageTests.product/Objects.LinkFileList")
    return try String(contentsOf: list, encoding: .utf8).split(separator: "\n").filter { line in
      let folder = line.split(separator: "/").dropLast().last ?? ""
      let module = folder.hasSuffix(".build") ? folder.dropLast(".build".count) : folder
      return !module.hasSuffix("Tests") && !exists(products.appending(path: "\(module).product"))
    }
  }

  /// What push's objects need, which are among the others.
  private static let pushLibraries = ["-lsqlite3", "-lstdc++"]

  /// Compiles and links a program with the objects that SwiftPM made.
  static func build(_ source: URL, to program: URL) async throws -> Outcome {
    let arguments = program.path + ".objects"
    try objects().joined(separator: "\n").write(toFile: arguments, atomically: false, encoding: .utf8)
    return try await run(
      ["swiftc", "-o", program.path] + language + modules + [source.path, "@" + arguments, "-lsodium"]
        + pushLibraries)
  }

  /// Runs a command with its output in a file beside what it works on, so that no pipe fills up.
  static func run(_ command: [String], in folder: URL? = nil, outputOnly: Bool = false) async throws
    -> Outcome
  {
    let output = FileManager.default.temporaryDirectory.appending(path: "output-\(UUID().uuidString)")
    try Data().write(to: output)
    defer { try? FileManager.default.removeItem(at: output) }
    let handle = try FileHandle(forWritingTo: output)
    let process = Process()
    process.executableURL = URL(filePath: "/usr/bin/env")
    process.arguments = command
    process.currentDirectoryURL = folder
    process.standardInput = FileHandle.nullDevice
    process.standardOutput = handle
    if !outputOnly { process.standardError = handle }
    let status = try await withCheckedThrowingContinuation { continuation in
      process.terminationHandler = { continuation.resume(returning: $0.terminationStatus) }
      do { try process.run() } catch { continuation.resume(throwing: error) }
    }
    try handle.close()
    return Outcome(status: status, text: try String(contentsOf: output, encoding: .utf8))
  }
}
