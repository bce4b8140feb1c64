import ContainerStore

/// Where things go in a container when a path is given as for cp(1) and mv(1).
extension Container {
  /// `destination`, or its place inside when that is a directory. Without a base name (`.` or `/`) contents are merged into it.
  func place(of source: String, at destination: String) throws -> String {
    let isDirectory = try isDirectory(destination)
    guard isDirectory || PathText.endsWithSlash(destination) else { return destination }
    guard let name = PathText.baseName(source) else { return destination }
    return PathText.joined(destination, name)
  }

  /// Whether a directory, or a link to one, is there.
  func isDirectory(_ path: String) throws -> Bool {
    try attributes(at: path, followingLinks: true)?.kind == .directory
  }

  /// Throws `noSuchFile` when there is nothing.
  func existing(_ path: String, followingLinks: Bool = false) throws -> FileAttributes {
    guard let attributes = try attributes(at: path, followingLinks: followingLinks) else {
      throw ContainerError(.noSuchFile, path: path)
    }
    return attributes
  }

  /// The directories on the way to `path` that are not there yet, outermost first.
  func missingParents(of path: String) throws -> [String] {
    var missing: [String] = []
    var parent = PathText.parent(path)
    while parent != "/", parent != ".", try attributes(at: parent, followingLinks: true) == nil {
      missing.insert(parent, at: 0)
      parent = PathText.parent(parent)
    }
    return missing
  }
}

/// Where a command tells what was found to be wrong when it opened a container.
enum FindingReport {
  /// Standard error, as text.
  case text
  /// Standard error, as JSON objects.
  case json
  /// The command itself, or nowhere.
  case none

  func write(_ findings: [Finding], of directory: String) {
    let findings = findings.map(FindingDescription.init)
    for finding in findings {
      switch self {
      case .text: StandardError.write("dynamics: \(PrintableText.of(directory)): \(finding.text)\n")
      case .json: if let text = try? JSONText.of(["finding": finding]) { StandardError.write(text) }
      case .none: break
      }
    }
    if self == .text { StandardError.write(FindingDescription.remedy(for: findings)) }
  }
}

/// Opens a container for `body`, reports what is found to be wrong, and closes it again, whatever
/// happens. Closing makes changes durable, so its failure counts. Damage in a part of the catalog that
/// `body` is the first to read is reported at the end.
func withContainer<R>(
  at directory: String, _ secret: borrowing Secret, mode: Container.Mode,
  options: Container.Options = Container.Options(), findings: FindingReport = .text,
  _ body: (Container) throws -> R
) throws -> R {
  var options = options
  options.acceptsOlderState = options.acceptsOlderState || secret.acceptsOlderState
  let container = try Container.open(
    at: directory, credential: try secret.credential(), mode: mode, options: options)
  let foundByOpening = container.findings
  findings.write(foundByOpening, of: directory)
  defer { findings.write(container.findings.filter { !foundByOpening.contains($0) }, of: directory) }
  let result: R
  do {
    result = try body(container)
  } catch {
    let named = error.namingStaged(in: container)
    // The first error is the one to report.
    try? container.close()
    throw named
  }
  try container.close()
  return result
}

extension StagedMessage {
  static let advice = "rm -r DIR /.opendynamics/staging removes what has come of them"
}

extension [StagedMessage] {
  var storedByteCount: UInt64 { saturatingSum(\.storedByteCount) }
}

extension Error {
  /// Of a container without room, with what waits in it for the rest of messages.
  fileprivate func namingStaged(in container: Container) -> any Error {
    guard let error = self as? ContainerError, error.code == .diskFull,
      let staged = try? container.stagedMessages(), !staged.isEmpty
    else { return self }
    return error.with(
      detail: "\(Quantity.count(staged.count, "unfinished message")) of other apps take "
        + "\(Quantity.bytes(staged.storedByteCount)): \(StagedMessage.advice)")
  }
}
