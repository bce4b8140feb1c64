import CPosix
import ContainerStore
import Locks

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#elseif canImport(Darwin)
  import Darwin
#endif

/// How far an operation is, as the bar shows it.
struct ProgressState {
  var bytesDone: UInt64
  /// Nil when nobody knows.
  var byteCount: UInt64?
  /// Since the beginning.
  var seconds: Double

  var isFinished: Bool { bytesDone == byteCount }
  var bytesPerSecond: Double { seconds > 0 ? Double(bytesDone) / seconds : 0 }
}

extension ProgressState {
  init(_ progress: BulkProgress) {
    self.init(bytesDone: progress.bytesDone, byteCount: progress.byteCount, seconds: progress.seconds)
  }
}

/// One line on standard error that is drawn again in its place.
final class ProgressBar {
  private static let columnsWithoutTerminal = 80
  private static let redrawSeconds = 0.1

  private let title: String
  private var drawnAt = -Double.infinity
  private var isDrawn = false

  init(title: String) { self.title = title }

  func show(_ progress: ProgressState) {
    guard progress.seconds - drawnAt >= Self.redrawSeconds || progress.isFinished else { return }
    drawnAt = progress.seconds
    isDrawn = true
    // Asked every time: the window may have been resized.
    let columns = Int(cposix_terminal_columns(STDERR_FILENO))
    let line = Self.line(
      title: title, progress, columns: columns > 0 ? columns : Self.columnsWithoutTerminal)
    StandardError.write("\r" + line + "\u{1b}[K")
  }

  /// Leaves the line empty for what is printed next.
  func clear() {
    if isDrawn { StandardError.write("\r\u{1b}[K") }
    isDrawn = false
    drawnAt = -.infinity
  }

  /// The line, at most one column less than there are: a full line would wrap on some terminals.
  static func line(title: String, _ progress: ProgressState, columns: Int) -> String {
    let width = max(0, columns - 1)
    let done = Quantity.bytes(progress.bytesDone)
    let rate = Quantity.rate(progress.bytesPerSecond)
    guard let byteCount = progress.byteCount else {
      return String("\(title)  \(done)  \(rate)".prefix(width))
    }
    let share =
      byteCount == 0 ? 1 : min(1, Double(progress.bytesDone) / Double(byteCount))
    let percent = String(Int(share * 100))
    let percentage = String(repeating: " ", count: max(0, 3 - percent.utf8.count)) + percent + "%"
    var parts = [title, percentage, "\(done) of \(Quantity.bytes(byteCount))", rate]
    if progress.bytesDone > 0, progress.bytesDone < byteCount, progress.bytesPerSecond > 0 {
      let left = Double(byteCount - progress.bytesDone) / progress.bytesPerSecond
      parts.append(Quantity.duration(seconds: left) + " left")
    }
    let text = parts.joined(separator: "  ")
    let cells = width - text.utf8.count - 4
    guard cells >= 10 else { return fitted(parts, width) }
    let filled = Int(share * Double(cells))
    let bar = String(repeating: "#", count: filled) + String(repeating: "-", count: cells - filled)
    return text + "  [" + bar + "]"
  }

  /// As many parts as fit, the percentage before all others.
  private static func fitted(_ parts: [String], _ width: Int) -> String {
    for count in stride(from: parts.count, through: 2, by: -1) {
      let text = parts.prefix(count).joined(separator: "  ")
      if text.utf8.count <= width { return text }
    }
    return String(parts[1].prefix(width))
  }
}

/// A bar that any thread may draw; nothing without a title.
final class SharedProgressBar: Sendable {
  private let bar: Guarded<ProgressBar?>

  init(_ title: String?) { bar = Guarded(title.map { ProgressBar(title: $0) }) }

  var isDrawn: Bool { bar.withLock { $0 != nil } }
  func show(_ progress: ProgressState) { bar.withLock { $0?.show(progress) } }
  func clear() { bar.withLock { $0?.clear() } }

  /// A line on standard error, above the bar.
  func write(_ line: String) {
    bar.withLock {
      $0?.clear()
      StandardError.write(line)
    }
  }
}
