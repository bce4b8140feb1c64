#if canImport(FoundationEssentials)
  public import FoundationEssentials
#else
  public import Foundation
#endif

/// For code that knows errors of Foundation only: `localizedDescription` says what the description says.
extension ServicesError: LocalizedError {
  public var errorDescription: String? { description }
  public var failureReason: String? { code.what }
  public var recoverySuggestion: String? { code.remedy }
}
