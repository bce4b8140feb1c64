import ArgumentParser
import ContainerStore
import SodiumPrimitives

/// The values of `--cipher`.
enum CipherName: String, ExpressibleByArgument, CaseIterable {
  case libsodium, libcrypto

  var backend: CipherBackend {
    switch self {
    case .libsodium: .libsodium
    case .libcrypto: .libcrypto
    }
  }
}

/// Options of commands that may move a lot of data.
struct BulkOptions: ParsableArguments {
  @Flag(help: "Prints no progress and no summary.")
  var quiet = false

  @Flag(help: "Draws the progress bar although standard error is no terminal.")
  var progress = false

  @Option(
    help: "The library that encrypts: \(CipherName.allCases.map(\.rawValue).joined(separator: " or ")).")
  var cipher: CipherName?

  @Option(
    help: ArgumentHelp("Threads that encrypt and decrypt; as many as processors by default.", valueName: "n"))
  var threads: Int?

  func validate() throws {
    if quiet, progress { throw ValidationError("Give --quiet or --progress, not both.") }
    if let threads, !(1...256).contains(threads) { throw ValidationError("--threads takes 1 to 256.") }
  }

  var findings: FindingReport { findings(asJSON: false) }

  func findings(asJSON json: Bool) -> FindingReport { quiet ? .none : json ? .json : .text }

  func containerOptions() throws -> Container.Options {
    var options = Container.Options()
    if let cipher {
      guard cipher != .libcrypto || CipherBackend.preferred == .libcrypto else {
        throw CommandError(.cipherMissing)
      }
      options.cipher = cipher.backend
    }
    if let threads { options.threadCount = threads }
    return options
  }

  /// Runs `body` with the bar, if there is to be one, and with the cancellation that a signal causes.
  @discardableResult
  func withProgress<R>(_ title: String, _ body: (BulkControl) throws -> R) rethrows -> R {
    try withProgressBar(title) { bar in
      let progress = bar.map { bar in { (progress: BulkProgress) in bar.show(ProgressState(progress)) } }
      return try body(BulkControl(progress: progress, cancellation: Interruption.shared.cancellation))
    }
  }

  private var drawsBar: Bool { progress || (!quiet && StandardError.isTerminal) }

  /// A bar for work of several threads, if there is to be one. Whoever has it clears it.
  func sharedBar(_ title: String) -> SharedProgressBar { SharedProgressBar(drawsBar ? title : nil) }

  /// Runs `body` with the bar, if there is to be one, and clears it.
  func withProgressBar<R>(_ title: String, _ body: (ProgressBar?) throws -> R) rethrows -> R {
    guard drawsBar else { return try body(nil) }
    let bar = ProgressBar(title: title)
    defer { bar.clear() }
    return try body(bar)
  }
}
