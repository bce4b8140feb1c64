import ArgumentParser
import ContainerStore
import Foundation
import SecureFiles
import SodiumPrimitives

/// Opening large containers and listing in them, each in a process of its own: the time, and the memory that is held.
struct CatalogRung {
  let bench: Bench

  func measure() throws {
    for count in bench.catalogCounts {
      let name = "files-\(count)"
      try Child.run(
        Child.ownExecutable,
        [
          CatalogChild.configuration.commandName!, "fill", "--path", bench.workspace.place(name), "--count",
          "\(count)",
        ])
      var opening = Series("open a container of \(count) files (raw key)", byteCount: nil)
      let inFolder = count / CatalogChild.folders(count)
      var naming = Series("names in a folder of \(inFolder) in it", byteCount: nil)
      var listing = Series("the same with sizes and dates", byteCount: nil)
      var entries = Series("the same as entries of the file manager", byteCount: nil)
      var urls = Series("the same as URLs with their values", byteCount: nil)
      var peak = MemoryPeak(name: "held after opening and names, container of \(count)", fileByteCount: count)
      for _ in 0..<bench.repetitions {
        let output = bench.workspace.place("figures")
        try Child.run(
          Child.ownExecutable,
          [
            CatalogChild.configuration.commandName!, "open", "--path", bench.workspace.place(name), "--count",
            "\(count)", "--output", output,
          ])
        let figures = try JSONDecoder().decode(
          CatalogChild.Figures.self, from: Data(contentsOf: URL(fileURLWithPath: output)))
        opening.seconds.append(figures.open)
        naming.seconds.append(figures.names)
        listing.seconds.append(figures.list)
        entries.seconds.append(figures.entries)
        urls.seconds.append(figures.urls)
        peak.peakByteCounts.append(figures.resident)
      }
      bench.add([opening, naming, listing, entries, urls])
      bench.add([peak])
      try bench.workspace.remove(name)
    }
  }
}

struct CatalogChild: ParsableCommand {
  static let configuration = CommandConfiguration(commandName: "catalog-child", shouldDisplay: false)

  enum Step: String, ExpressibleByArgument { case fill, open }

  struct Figures: Codable {
    var open: Double
    var names: Double
    var list: Double
    var entries: Double
    var urls: Double
    /// Resident bytes after opening and the listing of names.
    var resident: Int
  }

  @Argument var step: Step
  @Option var path: String
  @Option var count: Int
  @Option var output: String?

  /// A large container has ten folders; one of 100,000 files has one.
  static func folders(_ count: Int) -> Int { max(1, count / 100_000) }

  func run() throws {
    let folders = Self.folders(count)
    switch step {
    case .fill:
      let container = try Workspace.create(path, .grouped)
      for folder in 0..<folders { try container.createDirectory("/\(folder)") }
      let contents = [UInt8](repeating: 7, count: 64)
      for i in 0..<count {
        try contents.withUnsafeBytes { try container.write($0, to: "/\(i % folders)/file-\(i).dat") }
      }
      try container.close()
    case .open:
      var container: Container?
      let open = try seconds { container = try Workspace.open(path, .readWrite) }
      let names = try seconds {
        guard try container!.names(in: "/0").count == count / folders else {
          fatalError("not every file is listed")
        }
      }
      let resident = Machine.residentByteCount()
      let list = try seconds {
        guard try container!.list("/0").count == count / folders else {
          fatalError("not every file is listed")
        }
      }
      try container!.close()
      let secure = try SecureContainer.open(
        at: URL(fileURLWithPath: path), rawKey: SecretBytes(count: 32), mode: .readOnly)
      let entries = try seconds {
        guard try secure.files.entries(atPath: "/0").count == count / folders else {
          fatalError("not every file is listed")
        }
      }
      let folder = secure.files.url(forPath: "/0", isDirectory: true)
      let urls = try seconds {
        let found = try secure.files.contentsOfDirectory(
          at: folder, includingPropertiesForKeys: [.fileSizeKey, .contentModificationDateKey])
        guard found.count == count / folders else { fatalError("not every file is listed") }
      }
      try secure.close()
      let figures = Figures(
        open: open, names: names, list: list, entries: entries, urls: urls, resident: resident)
      try JSONEncoder().encode(figures).write(to: URL(fileURLWithPath: output!))
    }
  }
}
