#if canImport(FoundationEssentials)
  public import FoundationEssentials
#else
  public import Foundation
#endif

/// For code that knows errors of Foundation only: `localizedDescription` says what the description says.
extension ServicesError: LocalizedError {
  /// What failed, where, and what to do: the description.
  public var errorDescription: String? { description }
  /// What failed, without the location.
  public var failureReason: String? { code.what }
  /// What to do.
  public var recoverySuggestion: String? { code.remedy }
}

/// `localizedDescription` is the text of the provider's app.
extension ServiceReplyError: LocalizedError {
  /// The text, or the code when there is none.
  public var errorDescription: String? { text.isEmpty ? "error \(code) of the other app" : text }
}
