package import Foundation

/// Why a call to a back end has no usable answer: the documented codes of a failed ping.
package enum CallbackFailure: UInt32, Error, Sendable, CaseIterable {
  case unresolvedHost = 600
  case noConnection = 601
  case invalidCertificate = 602
  case timeout = 603
  case invalidResponse = 604
  /// The back end has answered, and does not know the token.
  case unknownToken = 605
}

package struct CallbackRequest: Sendable {
  package var url: CallbackURL
  package var method: String
  package var headers: [(name: String, value: String)]
  package var body: String?

  package init(url: CallbackURL, method: String, headers: [(name: String, value: String)], body: String?) {
    self.url = url
    self.method = method
    self.headers = headers
    self.body = body
  }
}

package struct CallbackResponse: Sendable {
  package var status: Int
  /// Values of `X-Good-GNP-Code`.
  package var codes: [String]
  package var body: Data

  package init(status: Int, codes: [String] = [], body: Data = Data()) {
    self.status = status
    self.codes = codes
    self.body = body
  }
}

/// Calls back ends.
package protocol CallbackCalling: Sendable {
  /// Returns when the whole answer is there; it follows no redirect.
  func call(_ request: CallbackRequest) async throws(CallbackFailure) -> CallbackResponse
}
