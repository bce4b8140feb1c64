import CLibFuzzer
import Foundation

/// `fuzz --target=NAME [libFuzzer's options] [CORPUS…]`, `fuzz --targets`, `fuzz --seeds=DIRECTORY`.
@main
enum Program {
  static func main() throws {
    if CommandLine.arguments.contains("--targets") {
      for target in Target.all { print(target.name, target.inputByteCountMax) }
      return
    }
    if let directory = option("seeds") { return try writeSeeds(to: directory) }
    // A target whose seeds are refused tests only refusals: the format has moved on, and the target must follow.
    for seed in try target.seeds() {
      let isAccepted = try target.accepts(seed.bytes)
      require(isAccepted || !seed.isAccepted, "\(target.name) refuses its seed \(seed.name)")
    }
    var count = CommandLine.argc
    var arguments: UnsafeMutablePointer<UnsafeMutablePointer<CChar>?>? = CommandLine.unsafeArgv
    exit(
      LLVMFuzzerRunDriver(&count, &arguments) { bytes, count in
        do {
          _ = try Program.target.accepts([UInt8](UnsafeBufferPointer(start: bytes, count: count)))
        } catch {
          fatalError("\(Program.target.name) threw \(error)")
        }
        return 0
      })
  }

  private static let target: Target = {
    guard let name = option("target"), let target = Target.all.first(where: { $0.name == name }) else {
      print("name one of these with --target=NAME: \(Target.all.map(\.name).joined(separator: ", "))")
      exit(2)
    }
    return target
  }()

  /// libFuzzer ignores options that begin with two dashes.
  private static func option(_ name: String) -> String? {
    CommandLine.arguments.first { $0.hasPrefix("--\(name)=") }.map { String($0.dropFirst(name.count + 3)) }
  }

  private static func writeSeeds(to directory: String) throws {
    for target in Target.all {
      let folder = URL(filePath: directory).appending(path: target.name)
      try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
      for seed in try target.seeds() {
        let isAccepted = try target.accepts(seed.bytes)
        require(isAccepted || !seed.isAccepted, "\(target.name) refuses its seed \(seed.name)")
        try Data(seed.bytes).write(to: folder.appending(path: seed.name))
      }
    }
  }
}
